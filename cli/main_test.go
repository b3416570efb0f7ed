package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/program"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestEveryCommandIsDocumented(t *testing.T) {
	for _, missing := range program.Undocumented(newRoot(time.Now)) {
		t.Error(missing)
	}
}

func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
		t.Errorf("want code %d, stdout with %q, stderr with %q; got code %d\nstdout: %s\nstderr: %s", code, stdout, stderr, r.code, r.stdout, r.stderr)
	}
	if stderr == "" && r.stderr != "" {
		t.Errorf("stderr: %s", r.stderr)
	}
}

func TestVersionAsksNobody(t *testing.T) {
	call(t.Context(), nil, "version").want(t, 0, "kubectl-offramp ", "")
}

func TestStatus(t *testing.T) {
	fleet := &fakeFleet{readiness: fleetOf(3, 1, 1, 1)}
	ask(t, fleet, "status").want(t, 0, "Nodes: 3 (1 ready, 1 blocked, 1 unknown)", "")
	ask(t, fleet, "status", "--target", "none", "-o", "json").want(t, 0, `"blocked": "1"`, "")
	ask(t, fleet, "status", "-o", "yaml").want(t, 0, "\nblocked: \"1\"\n", "")
	if want := []string{"readiness TARGET_NFTABLES", "readiness TARGET_NONE", "readiness TARGET_NFTABLES"}; !slices.Equal(fleet.calls, want) {
		t.Errorf("calls: %q", fleet.calls)
	}
}

func TestReadyExitCodes(t *testing.T) {
	change := func(response *offrampv1.GetReadinessResponse, how func(*offrampv1.GetReadinessResponse)) *offrampv1.GetReadinessResponse {
		how(response)
		return response
	}
	young := func(r *offrampv1.GetReadinessResponse) { r.ListeningSince = timestamppb.New(noon.Add(-time.Minute)) }
	left := func(r *offrampv1.GetReadinessResponse) { r.WithLeftovers = 1 }
	tests := map[string]struct {
		response *offrampv1.GetReadinessResponse
		args     []string
		code     int
		says     string
	}{
		"all ready":                {fleetOf(3, 3, 0, 0), nil, 0, "every node could go there"},
		"leftovers":                {change(fleetOf(3, 3, 0, 0), left), nil, 3, "leftovers"},
		"one blocked":              {fleetOf(3, 2, 1, 0), nil, 2, "blocked"},
		"blocked before unknown":   {fleetOf(3, 1, 1, 1), nil, 2, "blocked"},
		"unknown before leftovers": {change(fleetOf(3, 2, 0, 1), left), nil, 4, "could not tell"},
		"the cluster blocks":       {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.Verdict = offrampv1.Verdict_VERDICT_BLOCKED }), nil, 2, "the cluster is in the way"},
		"never seen":               {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.NeverSeen = 1 }), nil, 4, "could not tell"},
		"incomplete":               {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.Incomplete = "just started" }), nil, 4, "nodes may be missing: just started"},
		"verdict unknown":          {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.Verdict = offrampv1.Verdict_VERDICT_UNKNOWN }), nil, 4, "could not tell"},
		"silent":                   {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.Silent = 1 }), nil, 4, "silent"},
		"no nodes":                 {fleetOf(0, 0, 0, 0), nil, 4, "no node has reported"},
		"counts do not add up":     {fleetOf(3, 2, 0, 0), nil, 4, "could not tell"},
		"undecided leftovers":      {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.Leftovers.Undecided = true }), nil, 4, "could not tell"},
		"aggregator just started":  {change(fleetOf(3, 3, 0, 0), young), nil, 4, "less than 3m0s"},
		"young, and accepted":      {change(fleetOf(3, 3, 0, 0), young), []string{"--min-listening=30s"}, 0, "every node"},
		"young and blocked":        {change(fleetOf(3, 2, 1, 0), young), nil, 2, "blocked"},
		"young before leftovers":   {change(change(fleetOf(3, 3, 0, 0), young), left), nil, 4, "less than"},
		"never said since when":    {change(fleetOf(3, 3, 0, 0), func(r *offrampv1.GetReadinessResponse) { r.ListeningSince = nil }), nil, 4, "less than"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ask(t, &fakeFleet{readiness: tt.response}, append([]string{"ready"}, tt.args...)...).want(t, tt.code, tt.says, "")
		})
	}
}

// The code is the same whatever the format, and a document stays a document.
func TestReadyAsDocument(t *testing.T) {
	got := ask(t, &fakeFleet{readiness: fleetOf(3, 2, 1, 0)}, "ready", "-o", "json")
	got.want(t, 2, "", "")
	if err := protojson.Unmarshal([]byte(got.stdout), &offrampv1.GetReadinessResponse{}); err != nil {
		t.Error(err)
	}
}

func TestReadyRefusesAnAnswerToAnotherQuestion(t *testing.T) {
	ask(t, &fakeFleet{readiness: fleetOf(3, 3, 0, 0), stubborn: true}, "ready", "--target", "none").want(t, 1, "", "answered for target nftables")
}

func TestNodesFetchesEveryPage(t *testing.T) {
	fleet := &fakeFleet{nodes: someNodes(5)}
	ask(t, fleet, "nodes", "-o", "name").want(t, 0, "worker-1\nworker-2\nworker-3\nworker-4\nworker-5\n", "")
	want := []string{`nodes TARGET_NFTABLES ""`, `nodes TARGET_NFTABLES "2"`, `nodes TARGET_NFTABLES "4"`}
	if !slices.Equal(fleet.calls, want) {
		t.Errorf("calls: %q", fleet.calls)
	}
}

func TestNodesFormats(t *testing.T) {
	fleet := &fakeFleet{nodes: someNodes(3)}
	got := ask(t, fleet, "nodes")
	got.want(t, 0, "worker-3  6.1.0   ipvs  on-ipvs  ready", "")
	if lines := strings.Count(got.stdout, "\n"); lines != 4 {
		t.Errorf("%d lines", lines)
	}
	ask(t, fleet, "nodes", "-o", "wide").want(t, 0, "KUBE-PROXY", "")
	ask(t, fleet, "nodes", "-o", "yaml").want(t, 0, "node: worker-3", "")
	document := ask(t, fleet, "nodes", "-o", "json")
	list := &offrampv1.ListNodesResponse{}
	if err := protojson.Unmarshal([]byte(document.stdout), list); err != nil || len(list.GetNodes()) != 3 {
		t.Errorf("%d nodes, %v", len(list.GetNodes()), err)
	}
	ask(t, &fakeFleet{}, "nodes").want(t, 0, "No node has reported yet.", "")
}

func TestNodesDoesNotTurnInCircles(t *testing.T) {
	got := ask(t, &fakeFleet{nodes: someNodes(5), sameToken: true}, "nodes")
	got.want(t, 1, "", "the same page twice")
	if got.stdout != "" {
		t.Errorf("a part was printed as the whole: %s", got.stdout)
	}
}

func TestNode(t *testing.T) {
	fleet := &fakeFleet{node: &offrampv1.GetNodeResponse{
		Summary: summaryOf("worker-1", offrampv1.Verdict_VERDICT_BLOCKED),
		Facts: &offrampv1.NodeFacts{Node: "worker-1", Sections: []*offrampv1.Section{{Kind: offrampv1.SectionKind_SECTION_KIND_IPVS,
			Stable: &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_ABSENT}}}}}}
	got := ask(t, fleet, "node", "worker-1", "--target", "iptables")
	got.want(t, 0, "ipvs: absent (the kernel has no ip_vs loaded)", "")
	got.want(t, 0, "could it go there: blocked", "")
	ask(t, fleet, "node", "worker-1", "-o", "json").want(t, 0, `"state": "SECTION_STATE_ABSENT"`, "")
	ask(t, fleet, "node").want(t, 1, "", "wants one node name")
	if want := []string{"node worker-1 TARGET_IPTABLES []", "node worker-1 TARGET_NFTABLES []"}; !slices.Equal(fleet.calls, want) {
		t.Errorf("calls: %q", fleet.calls)
	}
}

func TestNodeList(t *testing.T) {
	list := &offrampv1.NamedList{List: &offrampv1.ListDigest{Name: offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, Count: 2}, Items: []string{"10.96.0.1", "10.96.0.\x1b10"}}
	fleet := &fakeFleet{node: &offrampv1.GetNodeResponse{Lists: []*offrampv1.NamedList{list}}}
	got := ask(t, fleet, "node", "worker-1", "--list", "ipvs-link-addresses")
	got.want(t, 0, "", "")
	if want := "10.96.0.1\n10.96.0.\\x1b10\n"; got.stdout != want {
		t.Errorf("got %q", got.stdout)
	}
	if want := "node worker-1 TARGET_NFTABLES [LIST_NAME_IPVS_LINK_ADDRESSES]"; fleet.calls[0] != want {
		t.Errorf("got %q", fleet.calls[0])
	}
	list.List.Count = 3
	ask(t, fleet, "node", "worker-1", "--list", "ipvs-virtual-servers").want(t, 1, "", "not complete: 2 of 3 items")
	list.Error = "the node is not connected"
	ask(t, fleet, "node", "worker-1", "--list", "ipvs-virtual-servers").want(t, 1, "", "the node is not connected")
	fleet.node.Lists = nil
	ask(t, fleet, "node", "worker-1", "--list", "ipvs-virtual-servers").want(t, 1, "", "sent no list")
	ask(t, fleet, "node", "worker-1", "--list", "secrets").want(t, 1, "", `"secrets" is none of`)
}
