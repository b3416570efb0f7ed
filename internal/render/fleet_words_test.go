package render

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestSortNodes(t *testing.T) {
	phase := func(phase offrampv1.Phase, ready offrampv1.Verdict, chains uint64) *offrampv1.Assessment {
		return &offrampv1.Assessment{Phase: phase, Ready: ready, Leftovers: &offrampv1.Leftovers{Chains: chains}, RunningMode: offrampv1.ProxyMode_PROXY_MODE_IPVS}
	}
	ready, blocked, unknown := offrampv1.Verdict_VERDICT_READY, offrampv1.Verdict_VERDICT_BLOCKED, offrampv1.Verdict_VERDICT_UNKNOWN
	a := &offrampv1.NodeSummary{Node: "a", Pool: "z", KernelRelease: "5.14.0-427.el9", LastSeen: ago(1), Assessment: phase(offrampv1.Phase_PHASE_DONE, ready, 1)}
	b := &offrampv1.NodeSummary{Node: "b", Pool: "y", KernelRelease: "5.9.3", LastSeen: ago(2), Assessment: phase(offrampv1.Phase_PHASE_ON_IPVS, blocked, 0)}
	c := &offrampv1.NodeSummary{Node: "c", Pool: "x", KernelRelease: "5.14.0-70.el9", Assessment: phase(offrampv1.Phase_PHASE_ON_IPVS, unknown, 9)}
	for key, want := range map[string]string{
		"name": "abc", "pool": "cba", "kernel": "bac", "mode": "abc", "phase": "bca", "ready": "bca", "leftovers": "cab", "seen": "cba",
	} {
		nodes := []*offrampv1.NodeSummary{c, a, b}
		SortNodes(nodes, key)
		got := ""
		for _, node := range nodes {
			got += node.GetNode()
		}
		if got != want {
			t.Errorf("by %s: %s, want %s", key, got, want)
		}
		if !slices.Contains(SortKeys(), key) {
			t.Errorf("%s is no key", key)
		}
	}
}

func TestDifference(t *testing.T) {
	node := sampleNodes()[1]
	if got := Difference(node, proto.CloneOf(node)); len(got) != 0 {
		t.Errorf("no difference is %q", got)
	}
	after := proto.CloneOf(node)
	after.Connected, after.KernelRelease = true, "6.12.1\x1b"
	after.GetAssessment().Phase, after.GetAssessment().Leftovers = offrampv1.Phase_PHASE_DONE, &offrampv1.Leftovers{}
	after.GetAssessment().Findings = []*offrampv1.Finding{{Id: "other-mode", Severity: offrampv1.Severity_SEVERITY_INFO}, node.GetAssessment().GetFindings()[1]}
	want := []string{"phase: switched-dirty -> done", "leftovers: 130 -> 0", `kernel: 6.1.0-49-cloud-amd64 -> 6.12.1\x1b`, "connected: no -> yes",
		"new finding: other-mode (info)", "no longer: section-unreadable"}
	if got := Difference(node, after); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := Difference(nil, after); !slices.Equal(got, []string{"new: runs iptables, phase done, unknown"}) {
		t.Errorf("new node: %q", got)
	}
	// What only moves with time is no change.
	later := proto.CloneOf(node)
	later.LastSeen = ago(0)
	if got := Difference(node, later); len(got) != 0 {
		t.Errorf("a heartbeat is %q", got)
	}
}

func TestCSVHoldsNoFormula(t *testing.T) {
	var out bytes.Buffer
	if err := CSV(&out, [][]string{{"=1+2", "+cmd", "@x", "-x", "-12", "a,b", `a"b`, "a\nb", ""}}); err != nil {
		t.Fatal(err)
	}
	if want := "'=1+2,'+cmd,'@x,'-x,-12,\"a,b\",\"a\"\"b\",a\\x0ab,\n"; out.String() != want {
		t.Errorf("got %s", out.String())
	}
}

// A node cannot paint: only our own marks become colours, and only on a screen.
func TestColoursAreOurs(t *testing.T) {
	fleet := sampleFleet()
	fleet.Findings[0].Title = bad.on("forged") + "\x1b[31mforged"
	plain, screen := rendered(t, func(w io.Writer) error { return Readiness(w, fleet) }), rendered(t, func(w io.Writer) error { return Readiness(Screen{w}, fleet) })
	if strings.Contains(plain, "\x1b") || strings.ContainsRune(plain, rune(bad)) {
		t.Errorf("plain text has marks: %q", plain)
	}
	if !strings.Contains(screen, "\x1b[31mblocked\x1b[0m") || strings.Contains(screen, "\x1b[31mforged") {
		t.Errorf("on a screen: %q", screen)
	}
	if !strings.Contains(screen, `\ue003forged\ue000\x1b[31mforged`) {
		t.Error("a forged mark is not spelled out")
	}
}

func TestPrintableCutsNothing(t *testing.T) {
	long := strings.Repeat("x", 3*maxText) + "\x1b"
	if got := Printable(long); got != strings.Repeat("x", 3*maxText)+`\x1b` {
		t.Errorf("%d bytes", len(got))
	}
}

// Answers with nothing in them, which a broken aggregator may send, are no reason to crash.
func TestEmptyAnswers(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"readiness": func(w io.Writer) error { return Readiness(w, nil) }, "ready": func(w io.Writer) error { return Ready(w, nil, "") },
		"steps": func(w io.Writer) error {
			return Steps(w, &offrampv1.GetReadinessResponse{Steps: []*offrampv1.Step{nil, {}}})
		},
		"findings": func(w io.Writer) error {
			return Findings(w, &offrampv1.GetReadinessResponse{ClusterFindings: []*offrampv1.Finding{nil}}, true)
		},
		"leftovers": func(w io.Writer) error { return Leftovers(w, []*offrampv1.NodeSummary{nil}, nil) },
		"nodes":     func(w io.Writer) error { return NodesCSV(w, []*offrampv1.NodeSummary{nil}) },
		"changes": func(w io.Writer) error {
			return Changes(w, &offrampv1.ListChangesResponse{Changes: []*offrampv1.Change{nil}})
		},
		"accepted": func(w io.Writer) error { return Acceptances(w, []*offrampv1.Acceptance{nil}, noon) },
		"head":     func(w io.Writer) error { return ServiceHead(w, nil) },
		"node": func(w io.Writer) error {
			return NodeService(w, &offrampv1.NodeService{Entries: []*offrampv1.ServiceEntry{nil, {}, {Kind: "real server"}}}, true)
		},
		"balance": func(w io.Writer) error {
			return Balance(w, []*offrampv1.NodeService{nil, {Entries: []*offrampv1.ServiceEntry{{Kind: "real server"}}}})
		},
		"end": func(w io.Writer) error { return ServiceEnd(w, nil) },
	} {
		t.Run(name, func(t *testing.T) { mustPrint(t, rendered(t, write)) })
	}
}
