package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"sigs.k8s.io/yaml"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestWord(t *testing.T) {
	for want, value := range map[string]protoreflect.Enum{
		"switched-dirty":    offrampv1.Phase_PHASE_SWITCHED_DIRTY,
		"on-ipvs":           offrampv1.Phase_PHASE_ON_IPVS,
		"not-applicable":    offrampv1.Phase_PHASE_NOT_APPLICABLE,
		"nftables":          offrampv1.Target_TARGET_NFTABLES,
		"none":              offrampv1.ProxyMode_PROXY_MODE_NONE,
		"blocker":           offrampv1.Severity_SEVERITY_BLOCKER,
		"iptables-nft-ipv4": offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4,
	} {
		if got := Word(value); got != want {
			t.Errorf("%v is %q, want %q", value, got, want)
		}
	}
	for _, value := range []protoreflect.Enum{
		offrampv1.Phase_PHASE_UNSPECIFIED, offrampv1.Phase_PHASE_UNKNOWN, offrampv1.Phase(999), offrampv1.Verdict(-1),
	} {
		if got := Word(value); got != "unknown" {
			t.Errorf("%v is %q, want unknown", value, got)
		}
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 chains": count(0, "chain"), "1 chain": count(1, "chain"), "1,234,567 chains": count(1234567, "chain"),
		"2 entries": count(2, "entry"), "2 IPv4 addresses": count(2, "IPv4 address"), "1 entry": count(1, "entry"), "100 sets": count(100, "set"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for passed, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 119 * time.Minute: "1h", 26 * time.Hour: "1d", 400 * 24 * time.Hour: "400d",
	} {
		if got := age(ago(passed), noon); got != want {
			t.Errorf("%s ago is %q, want %q", passed, got, want)
		}
	}
	if got := age(nil, noon); got != "never" {
		t.Errorf("no time is %q", got)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"worker-1": "worker-1", "a\x1b[31mb": `a\x1b[31mb`, "a\nb": `a\x0ab`, "\u009b2J": `\u009b2J`, "\xff": `\xff`,
		"\u202egnp": `\u202egnp`, "\U000e0001": `\U000e0001`, "漢字 ü": "漢字 ü", "\ufffd": "\ufffd",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := Clean(strings.Repeat("x", maxText+5)); got != strings.Repeat("x", maxText)+"…" {
		t.Errorf("long text became %d bytes", len(got))
	}
}

func TestLeftoverCell(t *testing.T) {
	for want, left := range map[string]*offrampv1.Leftovers{
		"?": {Undecided: true}, "130": dirtyLeftovers(), "0": {}, "2+?": {Jumps: 2, Undecided: true},
	} {
		if got := leftoverCell(left); got != want {
			t.Errorf("%v is %q, want %q", left, got, want)
		}
	}
	if got := leftoverCell(nil); got != "?" {
		t.Errorf("nothing known is %q", got)
	}
}

// What could not be told never reads as clean.
func TestVerifyWords(t *testing.T) {
	ready := offrampv1.Verdict_VERDICT_READY
	for want, assessment := range map[string]*offrampv1.Assessment{
		"ready, clean":                           cleanAssessment(),
		"ready, with leftovers":                  {Verify: ready, Leftovers: dirtyLeftovers()},
		"ready, leftovers could not all be told": {Verify: ready, Leftovers: &offrampv1.Leftovers{Chains: 1, Undecided: true}},
		"blocked":                                dirtyAssessment(),
		"unknown":                                nil,
	} {
		if got := finish(nil, verifyWords(assessment)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := verifyWords(&offrampv1.Assessment{Verify: ready}); strings.Contains(got, "clean") {
		t.Errorf("without leftovers: %q", got)
	}
}

// A document gives back the message it was made from, attacks included; YAML alone spells out what does not print.
func TestDocumentsKeepEverything(t *testing.T) {
	message := &offrampv1.GetNodeResponse{Summary: sampleNodes()[0], Facts: dirtyNode()}
	poison(message)
	var indented, line bytes.Buffer
	if err := errors.Join(JSON(&indented, message), JSONLine(&line, message)); err != nil {
		t.Fatal(err)
	}
	for _, document := range [][]byte{indented.Bytes(), line.Bytes()} {
		got := &offrampv1.GetNodeResponse{}
		if err := protojson.Unmarshal(document, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(message, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	if n := bytes.Count(line.Bytes(), []byte("\n")); n != 1 {
		t.Errorf("JSONLine made %d lines", n)
	}
}

func TestYAMLIsTheJSON(t *testing.T) {
	for _, message := range []proto.Message{sampleFleet(), dirtyNode(), &offrampv1.ListNodesResponse{}} {
		var fromJSON, fromYAML any
		var document, text bytes.Buffer
		if err := errors.Join(JSON(&document, message), YAML(&text, message)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(json.Unmarshal(document.Bytes(), &fromJSON), yaml.Unmarshal(text.Bytes(), &fromYAML)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
			t.Error(diff)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWriteErrorsAreTold(t *testing.T) {
	for name, err := range map[string]error{
		"node": Node(brokenPipe{}, dirtyNode(), nil), "json": JSON(brokenPipe{}, sampleFleet()), "yaml": YAML(brokenPipe{}, sampleFleet()),
		"nodes": Nodes(brokenPipe{}, sampleNodes(), false, noon), "readiness": Readiness(brokenPipe{}, sampleFleet()),
	} {
		if err == nil || !strings.Contains(err.Error(), "broken pipe") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTableLinesUpLaterRows(t *testing.T) {
	table := &NodeTable{Now: func() time.Time { return noon }}
	var out bytes.Buffer
	nodes := sampleNodes()
	if err := errors.Join(table.Write(&out, nodes...), table.Write(&out, nodes[2]), table.Forgotten(&out, "worker-2")); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 || lines[3] != lines[4] {
		t.Errorf("rows of the same node differ:\n%s", out.String())
	}
	if !strings.HasPrefix(lines[5], "worker-2         forgotten") {
		t.Errorf("got %q", lines[5])
	}
}
