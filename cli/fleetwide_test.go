package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// wantCalls compares what the fake was asked.
func (f *fakeFleet) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.calls, want) {
		t.Errorf("calls: %q", f.calls)
	}
	f.calls = nil
}

// An answer about a version goes by that answer alone, but for what was not heard of.
func TestReadyForAVersion(t *testing.T) {
	const ready, blocked, unknown = offrampv1.Verdict_VERDICT_READY, offrampv1.Verdict_VERDICT_BLOCKED, offrampv1.Verdict_VERDICT_UNKNOWN
	for name, tt := range map[string]struct {
		verdict offrampv1.Verdict
		fleet   *offrampv1.GetReadinessResponse
		left    uint64
		silent  uint64
		code    int
		says    string
	}{
		"ready, whatever the target":     {ready, fleetOf(3, 0, 3, 0), 0, 0, 0, "every node could run Kubernetes 1.40"},
		"ready, the target is unknown":   {ready, fleetOf(3, 0, 0, 3), 0, 0, 0, "every node could run"},
		"blocked, whatever the target":   {blocked, fleetOf(3, 3, 0, 0), 0, 0, 2, "could not run Kubernetes 1.40"},
		"unknown":                        {unknown, fleetOf(3, 3, 0, 0), 0, 0, 4, "could not tell"},
		"unspecified":                    {0, fleetOf(3, 3, 0, 0), 0, 0, 4, "could not tell"},
		"leftovers":                      {ready, fleetOf(3, 3, 0, 0), 1, 0, 3, "some have leftovers"},
		"silent nodes, whatever it says": {ready, fleetOf(3, 3, 0, 0), 1, 1, 4, "silent"},
		"blocked before silent":          {blocked, fleetOf(3, 3, 0, 0), 1, 1, 2, "blocked"},
		"no nodes":                       {ready, fleetOf(0, 0, 0, 0), 0, 0, 4, "no node"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.fleet.WithLeftovers, tt.fleet.Silent = tt.left, tt.silent
			tt.fleet.Upgrade = &offrampv1.UpgradeAnswer{Version: "1.40", Verdict: tt.verdict, Reasons: []string{"because of this"}}
			fleet := &fakeFleet{readiness: tt.fleet}
			ask(t, fleet, "ready", "--for", "v1.40.1", "-l", "pool=web").want(t, tt.code, tt.says, "")
			fleet.wantCalls(t, "readiness TARGET_NFTABLES pool=web v1.40.1")
		})
	}
	ask(t, &fakeFleet{readiness: fleetOf(3, 3, 0, 0)}, "ready", "--for", "1.40").want(t, 1, "", "said nothing about Kubernetes 1.40")
}

func TestNodesFilters(t *testing.T) {
	fleet := &fakeFleet{nodes: someNodes(3)}
	ask(t, fleet, "nodes", "-l", "pool=web", "--phase", "on-ipvs,soaking", "--leftovers", "--finding", "on-ipvs", "--mode", "ipvs", "-o", "name").want(t, 0, "worker-3\n", "")
	const filters = " pool=web on-ipvs leftovers PHASE_ON_IPVS PHASE_SOAKING PROXY_MODE_IPVS"
	fleet.wantCalls(t, `nodes TARGET_NFTABLES ""`+filters, `nodes TARGET_NFTABLES "2"`+filters)
	ask(t, fleet, "nodes", "--mode", "unknown", "-o", "name").want(t, 0, "worker-1", "")
	fleet.wantCalls(t, `nodes TARGET_NFTABLES "" PROXY_MODE_UNKNOWN`, `nodes TARGET_NFTABLES "2" PROXY_MODE_UNKNOWN`)
	ask(t, &fakeFleet{}, "nodes", "--leftovers").want(t, 0, "No node is like that.", "")
	for want, args := range map[string][]string{
		`"ipvs" is none of`:           {"--phase", "ipvs"},
		`"on-ipvs" is none of`:        {"--mode", "on-ipvs"},
		`"age" is none of`:            {"--sort-by", "age"},
		"no filter and no order":      {"-w", "-l", "a=b"},
		"cannot print csv":            {"-w", "-o", "csv"},
		"wants a template":            {"-o", "jsonpath"},
		"template \"{.nodes\"":        {"-o", "jsonpath={.nodes"},
		`"json=x" is none of text, w`: {"-o", "json=x"},
	} {
		ask(t, fleet, append([]string{"nodes"}, args...)...).want(t, 1, "", want)
	}
}

func TestNodesInOrder(t *testing.T) {
	nodes := someNodes(3)
	nodes[1].GetAssessment().Ready = offrampv1.Verdict_VERDICT_BLOCKED
	nodes[2].GetAssessment().Leftovers.Chains = 7
	fleet := &fakeFleet{nodes: nodes}
	ask(t, fleet, "nodes", "--sort-by", "ready", "-o", "name").want(t, 0, "worker-2\nworker-1\nworker-3\n", "")
	ask(t, fleet, "nodes", "--sort-by", "leftovers", "-o", "jsonpath={.nodes[*].node}").want(t, 0, "worker-3 worker-1 worker-2\n", "")
}

func TestJSONPath(t *testing.T) {
	nodes := someNodes(2)
	nodes[0].OsPrettyName = "evil\x1b[2J\nworker-0"
	fleet := &fakeFleet{nodes: nodes, readiness: fleetOf(3, 2, 1, 0)}
	for template, want := range map[string]string{
		`{range .nodes[*]}{.node} {.assessment.phase}{"\n"}{end}`: "worker-1 PHASE_ON_IPVS\nworker-2 PHASE_ON_IPVS\n",
		".nodes[1].node":           "worker-2\n",
		"{.nodes[0].osPrettyName}": `evil\x1b[2J\x0aworker-0` + "\n",
		"{.nosuch}":                "",
	} {
		got := ask(t, fleet, "nodes", "-o", "jsonpath="+template)
		if got.code != 0 || got.stdout != want {
			t.Errorf("%s: code %d, %q, %s", template, got.code, got.stdout, got.stderr)
		}
	}
	ask(t, fleet, "status", "-o", "jsonpath={.ready} of {.nodes}").want(t, 0, "2 of 3\n", "")
	ask(t, fleet, "ready", "-o", "jsonpath={.blocked}").want(t, 2, "1\n", "")
}

func TestLeftovers(t *testing.T) {
	with := someNodes(3)
	with[2].GetAssessment().Leftovers.Ipsets = 34
	sum := fleetOf(5, 5, 0, 0)
	sum.WithLeftovers, sum.Leftovers.Ipsets = 3, 34
	fleet := &fakeFleet{nodes: with, readiness: sum}
	ask(t, fleet, "leftovers", "-l", "pool=web").want(t, 3, "3 of 5 nodes: 34 ipsets", "")
	fleet.wantCalls(t, "readiness TARGET_NFTABLES pool=web", `nodes TARGET_NFTABLES "" pool=web leftovers`, `nodes TARGET_NFTABLES "2" pool=web leftovers`)
	ask(t, fleet, "leftovers", "-o", "csv").want(t, 3, "\nworker-3,", "")
	ask(t, fleet, "leftovers", "-o", "name").want(t, 3, "worker-1\nworker-2\nworker-3\n", "")
	list := &offrampv1.ListNodesResponse{}
	document := ask(t, fleet, "leftovers", "-o", "json")
	document.want(t, 3, "", "")
	if err := protojson.Unmarshal([]byte(document.stdout), list); err != nil || len(list.GetNodes()) != 3 {
		t.Errorf("%d nodes, %v", len(list.GetNodes()), err)
	}
	sum.Silent, sum.SilentSamples = 1, []string{"worker-9"}
	ask(t, fleet, "leftovers").want(t, 4, "Silent: 1 node: worker-9", "")
	ask(t, &fakeFleet{readiness: fleetOf(2, 2, 0, 0)}, "leftovers").want(t, 0, "No node is known to have leftovers.", "")
	open := fleetOf(2, 2, 0, 0)
	open.Leftovers.Undecided = true
	ask(t, &fakeFleet{readiness: open}, "leftovers").want(t, 4, "could not be told", "")
	ask(t, &fakeFleet{readiness: fleetOf(0, 0, 0, 0)}, "leftovers").want(t, 4, "", "")
}

func TestFindingsAndNext(t *testing.T) {
	sum := fleetOf(3, 1, 2, 0)
	sum.Findings = []*offrampv1.FindingCount{{Id: "kernel-too-old", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Title: "too old", Nodes: 2, Accepted: 1, Remedy: "rebuild"}}
	sum.Steps = []*offrampv1.Step{{Id: "rebuild-images", Title: "Rebuild", Why: "because", Commands: []string{"kubectl offramp nodes"}, Nodes: 2}}
	fleet := &fakeFleet{readiness: sum}
	ask(t, fleet, "findings").want(t, 0, "kernel-too-old (blocker), 2 nodes; accepted on 1", "")
	ask(t, fleet, "findings", "-o", "wide", "--target", "iptables").want(t, 0, "what to do: rebuild", "")
	ask(t, fleet, "findings", "-o", "csv").want(t, 0, "kernel-too-old,node,blocker,2,0,1,too old", "")
	ask(t, fleet, "next", "-l", "a=b").want(t, 0, "1. Rebuild\n    because\n    on 2 nodes\n    $ kubectl offramp nodes\n", "")
	ask(t, fleet, "next", "-o", "jsonpath={.steps[0].commands[*]}").want(t, 0, "kubectl offramp nodes\n", "")
	fleet.wantCalls(t, "readiness TARGET_NFTABLES", "readiness TARGET_IPTABLES", "readiness TARGET_NFTABLES", "readiness TARGET_NFTABLES a=b", "readiness TARGET_NFTABLES")
}

// A selector that the aggregator cannot use, or a part of the fleet that it may not show, is an error of one line.
func TestFleetwideFailures(t *testing.T) {
	for _, args := range [][]string{
		{"leftovers"}, {"findings"}, {"next"}, {"changes"}, {"history", "n"}, {"watch"}, {"service", "a/b"},
		{"accept", "on-ipvs", "--reason", "x", "--until", "1d"}, {"accept", "--list"}, {"accept", "--withdraw", "x"},
	} {
		got := ask(t, &fakeFleet{err: status.Error(codes.FailedPrecondition, "does not know the nodes' labels\x1b")}, args...)
		got.want(t, 1, "", `does not know the nodes' labels\x1b`)
		if strings.Count(got.stderr, "\n") != 1 || got.stdout != "" && args[0] != "watch" {
			t.Errorf("%q: %q, %q", args, got.stdout, got.stderr)
		}
	}
}
