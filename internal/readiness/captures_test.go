package readiness_test

import (
	"testing"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// expected is what a person concluded from a capture, before the code.
type expected struct {
	capture string
	// mode that a person asserts or that kube-proxy said; unspecified means what proxyMode.txt says, or unknown.
	mode      offrampv1.ProxyMode
	phase     offrampv1.Phase
	leftovers *offrampv1.Leftovers
	// ready and verify for the targets nftables, iptables, none; with the exit code of verify.
	ready, verify [3]offrampv1.Verdict
	exit          [3]int
}

const (
	yes     = offrampv1.Verdict_VERDICT_READY
	blocked = offrampv1.Verdict_VERDICT_BLOCKED
	unsure  = offrampv1.Verdict_VERDICT_UNKNOWN
)

func expectations() []expected {
	ready := [3]offrampv1.Verdict{yes, yes, yes}
	return []expected{
		{
			capture: "ipvs", phase: offrampv1.Phase_PHASE_ON_IPVS, leftovers: &offrampv1.Leftovers{},
			ready: ready, verify: [3]offrampv1.Verdict{blocked, blocked, blocked}, exit: [3]int{2, 2, 2},
		},
		{
			capture: "iptables", phase: offrampv1.Phase_PHASE_UNAFFECTED, leftovers: &offrampv1.Leftovers{},
			ready: ready, verify: [3]offrampv1.Verdict{blocked, yes, blocked}, exit: [3]int{2, 0, 2},
		},
		{
			capture: "nftables", phase: offrampv1.Phase_PHASE_UNAFFECTED, leftovers: &offrampv1.Leftovers{},
			ready: ready, verify: [3]offrampv1.Verdict{yes, blocked, blocked}, exit: [3]int{0, 2, 2},
		},
		{
			// Chains: the six that only ipvs mode has, in two families; jumps: its five that iptables mode does not have.
			capture: "ipvs-then-iptables", phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY,
			leftovers: &offrampv1.Leftovers{
				VirtualServers: 85, Links: 1, LinkAddresses: 68, Ipsets: 34, IpsetEntries: 261, Chains: 12, Jumps: 10,
			},
			ready: ready, verify: [3]offrampv1.Verdict{blocked, yes, blocked}, exit: [3]int{2, 3, 2},
		},
		{
			capture: "ipvs-then-nftables", phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY,
			leftovers: &offrampv1.Leftovers{Ipsets: 17, IpsetEntries: 125},
			ready:     ready, verify: [3]offrampv1.Verdict{yes, blocked, blocked}, exit: [3]int{3, 2, 2},
		},
		{
			// Nothing says that no kube-proxy is to come back, so nothing can be called left over.
			capture: "after-kube-proxy-cleanup", phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY,
			leftovers: &offrampv1.Leftovers{Undecided: true},
			ready:     [3]offrampv1.Verdict{unsure, unsure, unsure},
			verify:    [3]offrampv1.Verdict{unsure, unsure, unsure}, exit: [3]int{4, 4, 4},
		},
		{
			// 354 chains: all but three of kubelet's in each family. No jump is left, for kubelet's are not kube-proxy's.
			capture: "after-kube-proxy-cleanup", mode: offrampv1.ProxyMode_PROXY_MODE_NONE,
			phase:     offrampv1.Phase_PHASE_SWITCHED_DIRTY,
			leftovers: &offrampv1.Leftovers{Ipsets: 17, IpsetEntries: 125, Chains: 354},
			ready:     ready, verify: [3]offrampv1.Verdict{blocked, blocked, yes}, exit: [3]int{2, 2, 3},
		},
		{
			// Five virtual servers can be attributed: the IPv4 node ports, the only sets that could be filled.
			capture: "iptables-sync-failed", phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY,
			leftovers: &offrampv1.Leftovers{
				VirtualServers: 5, Links: 1, LinkAddresses: 68, Ipsets: 34, IpsetEntries: 44, Chains: 12, Jumps: 10,
			},
			ready:  [3]offrampv1.Verdict{blocked, blocked, blocked},
			verify: [3]offrampv1.Verdict{blocked, blocked, blocked}, exit: [3]int{2, 2, 2},
		},
	}
}

func TestEveryCaptureForEveryTarget(t *testing.T) {
	seen := map[string]bool{}
	for _, want := range expectations() {
		seen[want.capture] = true
		t.Run(want.capture+"/"+want.mode.String(), func(t *testing.T) { checkExpected(t, want) })
	}
	for _, name := range captures.Names() {
		if !seen[name] {
			t.Errorf("nobody said what to expect of %s", name)
		}
	}
}

func checkExpected(t *testing.T, want expected) {
	t.Helper()
	facts := captureFacts(t, want.capture, want.mode)
	targets := []offrampv1.Target{
		offrampv1.Target_TARGET_NFTABLES, offrampv1.Target_TARGET_IPTABLES, offrampv1.Target_TARGET_NONE,
	}
	for i, target := range targets {
		got := readiness.Assess(facts, target)
		if got.GetReady() != want.ready[i] || got.GetVerify() != want.verify[i] {
			t.Errorf("%v: ready %v, verify %v, want %v, %v", target, got.GetReady(), got.GetVerify(), want.ready[i], want.verify[i])
		}
		if got.GetPhase() != want.phase {
			t.Errorf("%v: phase %v, want %v", target, got.GetPhase(), want.phase)
		}
		if code := readiness.ExitCode(got.GetVerify(), got.GetLeftovers()); code != want.exit[i] {
			t.Errorf("%v: exit code %d, want %d", target, code, want.exit[i])
		}
		if diff := cmp.Diff(want.leftovers, got.GetLeftovers(), protocmp.Transform()); diff != "" {
			t.Errorf("%v: leftovers differ (-want +got):\n%s", target, diff)
		}
	}
}

// Findings a person expects of each capture, for the target nftables.
func TestFindingsOfEveryCapture(t *testing.T) {
	cases := map[string][]string{
		"ipvs":     {"on-ipvs"},
		"iptables": {"other-mode"},
		"nftables": {},
		"ipvs-then-iptables": {
			"leftover-chains", "leftover-ipsets", "leftover-ipvs-link", "leftover-virtual-servers", "ipvs-sysctls-left",
			"other-mode",
		},
		"ipvs-then-nftables":       {"leftover-ipsets", "ipvs-sysctls-left"},
		"after-kube-proxy-cleanup": {"running-mode-unknown"},
		"iptables-sync-failed": {
			"kube-proxy-not-in-sync", "modes-disagree", "leftover-chains", "leftover-ipsets",
			"leftover-ipvs-link", "leftover-virtual-servers", "unattributed-virtual-servers", "ipvs-sysctls-left", "other-mode",
		},
	}
	for name, want := range cases {
		got := readiness.Assess(captureFacts(t, name, 0), offrampv1.Target_TARGET_NFTABLES)
		ids := []string{}
		for _, finding := range got.GetFindings() {
			ids = append(ids, finding.GetId())
		}
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("%s: findings differ (-want +got):\n%s", name, diff)
		}
	}
}
