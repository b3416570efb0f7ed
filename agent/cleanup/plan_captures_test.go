package cleanup_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/e2e/captures"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	nftables = offrampv1.Target_TARGET_NFTABLES
	iptables = offrampv1.Target_TARGET_IPTABLES
	ipvs     = offrampv1.Target_TARGET_IPVS
	none     = offrampv1.Target_TARGET_NONE

	nobody = offrampv1.ProxyMode_PROXY_MODE_NONE
)

// stages counts operations: source, virtual servers, link, rules (jumps, chains, tables), ipsets, rest.
type stages [6]int

// expectedPlan is what a person says that a clean-up of a capture would do, counted in owners.txt (written by hand, before
// any code) and in the native tools' files, and which guards refuse it.
type expectedPlan struct {
	capture string
	mode    offrampv1.ProxyMode // what a person asserts
	target  offrampv1.Target
	stages  stages
	guards  []string
}

var (
	another  = []string{"mode-is-not-target"}
	untold   = []string{"mode-unknown"}
	unsynced = []string{"mode-is-not-target", "not-in-sync", "target-never-synced", "kept-server-needs-link"}
)

func expectedPlans() []expectedPlan {
	return []expectedPlan{
		// kube-ipvs0 has 36 IPv4 and 32 IPv6 addresses: 68 routes get another source, 32 on lo are taken away again.
		// Rules: 9 jumps and 11 chains of ipvs mode in two families; iptables mode uses 4 jumps and 5 chains of them.
		{"ipvs", 0, nftables, stages{68, 85, 1, 40, 34, 32}, another},
		{"ipvs", 0, iptables, stages{68, 85, 1, 22, 34, 32}, []string{"mode-is-not-target", "shared-chain-matches-sets"}},
		{"ipvs", 0, none, stages{68, 85, 1, 40, 34, 32}, another},
		{"ipvs", 0, ipvs, stages{}, nil},

		// 12 jumps in two families, 184 and 180 chains; without the shared ones 8 jumps, 179 and 175 chains.
		// KUBE-FORWARD, which ipvs mode uses too, holds one of the two nfacct objects.
		{"iptables", 0, nftables, stages{0, 0, 0, 388, 0, 2}, another},
		{"iptables", 0, iptables, stages{}, nil},
		{"iptables", 0, none, stages{0, 0, 0, 388, 0, 2}, another},
		{"iptables", 0, ipvs, stages{0, 0, 0, 370, 0, 1}, []string{"mode-is-not-target", "shared-chain-jumps-to-iptables-mode"}},

		{"nftables", 0, nftables, stages{0, 0, 0, 0, 0, 2}, nil},
		{"nftables", 0, iptables, stages{0, 0, 0, 2, 0, 0}, another},
		{"nftables", 0, none, stages{0, 0, 0, 2, 0, 2}, another},
		{"nftables", 0, ipvs, stages{0, 0, 0, 2, 0, 2}, another},

		// 17 jumps in two families (8 + 5 + 4), 190 and 186 chains.
		{"ipvs-then-iptables", 0, nftables, stages{68, 85, 1, 410, 34, 34}, another},
		{"ipvs-then-iptables", 0, iptables, stages{68, 85, 1, 22, 34, 32}, nil},
		{"ipvs-then-iptables", 0, none, stages{68, 85, 1, 410, 34, 34}, another},
		{"ipvs-then-iptables", 0, ipvs, stages{0, 0, 0, 370, 0, 1}, []string{"mode-is-not-target", "shared-chain-jumps-to-iptables-mode"}},

		{"ipvs-then-nftables", 0, nftables, stages{0, 0, 0, 0, 17, 2}, nil},
		{"ipvs-then-nftables", 0, iptables, stages{0, 0, 0, 2, 17, 0}, another},
		{"ipvs-then-nftables", 0, none, stages{0, 0, 0, 2, 17, 2}, another},
		{"ipvs-then-nftables", 0, ipvs, stages{0, 0, 0, 2, 0, 2}, another},

		// No jump is left; 178 and 174 chains of iptables mode and an emptied KUBE-MARK-MASQ in each family.
		{"after-kube-proxy-cleanup", 0, nftables, stages{0, 0, 0, 354, 17, 2}, untold},
		{"after-kube-proxy-cleanup", 0, iptables, stages{0, 0, 0, 0, 17, 0}, untold},
		{"after-kube-proxy-cleanup", 0, none, stages{0, 0, 0, 354, 17, 2}, untold},
		{"after-kube-proxy-cleanup", 0, ipvs, stages{0, 0, 0, 352, 0, 2}, untold},
		{"after-kube-proxy-cleanup", nobody, none, stages{0, 0, 0, 354, 17, 2}, nil},
		{"after-kube-proxy-cleanup", nobody, nftables, stages{0, 0, 0, 354, 17, 2}, another},

		// Five virtual servers can be attributed; the others stand on addresses of kube-ipvs0. 17 jumps and 17 chains in two
		// families. nat KUBE-SERVICES of IPv4 is still ipvs mode's.
		{"iptables-sync-failed", 0, nftables, stages{68, 5, 1, 68, 34, 32}, unsynced},
		{"iptables-sync-failed", 0, iptables, stages{68, 5, 1, 22, 34, 32},
			[]string{"not-in-sync", "target-never-synced", "shared-chain-matches-sets", "kept-server-needs-link"}},
		{"iptables-sync-failed", 0, none, stages{68, 5, 1, 68, 34, 32}, unsynced},
		{"iptables-sync-failed", 0, ipvs, stages{0, 0, 0, 28, 0, 0}, []string{"mode-is-not-target", "not-in-sync", "target-never-synced"}},
	}
}

func TestPlanOfEveryCaptureForEveryTarget(t *testing.T) {
	seen := map[string]int{}
	for _, want := range expectedPlans() {
		if want.mode == 0 {
			seen[want.capture]++
		}
		t.Run(want.capture+"/"+want.target.String()+"/"+want.mode.String(), func(t *testing.T) {
			plan := planOf(t, captured(t, want.capture, want.mode), want.target)
			if got := countStages(plan); got != want.stages {
				t.Errorf("operations by stage: %v, want %v", got, want.stages)
			}
			if diff := cmp.Diff(want.guards, guardIDs(plan)); diff != "" {
				t.Errorf("guards differ (-want +got):\n%s", diff)
			}
		})
	}
	for _, name := range captures.Names() {
		if seen[name] != 4 {
			t.Errorf("%d targets of %s are told, want 4", seen[name], name)
		}
	}
}

func planOf(t *testing.T, reading *cleanup.Reading, target offrampv1.Target) *offrampv1.Plan {
	t.Helper()
	plan, err := cleanup.MakePlan(reading, cleanup.Options{Target: target}, time.Unix(1800000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func countStages(plan *offrampv1.Plan) stages {
	var count stages
	for _, operation := range plan.GetOperations() {
		count[operation.GetStage()-1]++
	}
	return count
}

func guardIDs(plan *offrampv1.Plan) []string {
	var ids []string
	for _, guard := range plan.GetGuards() {
		ids = append(ids, guard.GetId())
	}
	return ids
}
