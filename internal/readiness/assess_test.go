package readiness_test

import (
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestExitCode(t *testing.T) {
	some, undecided := &offrampv1.Leftovers{Jumps: 1}, &offrampv1.Leftovers{Undecided: true, Chains: 1}
	cases := []struct {
		verdict offrampv1.Verdict
		left    *offrampv1.Leftovers
		want    int
	}{
		{yes, nil, 0},
		{yes, &offrampv1.Leftovers{}, 0},
		{yes, some, 3},
		{yes, &offrampv1.Leftovers{LinkAddresses: 1}, 3},
		{yes, undecided, 4},
		{unsure, nil, 4},
		{unsure, some, 4},
		{offrampv1.Verdict_VERDICT_UNSPECIFIED, nil, 4},
		{99, nil, 4},
		{blocked, nil, 2},
		{blocked, some, 2},
		{blocked, undecided, 2},
	}
	for _, c := range cases {
		if got := readiness.ExitCode(c.verdict, c.left); got != c.want {
			t.Errorf("exit code of %v with %v is %d, want %d", c.verdict, c.left, got, c.want)
		}
	}
}

func TestVerify(t *testing.T) {
	others := func(n *testNode) {
		n.addChains(kinds.nft4, "foreign:kube-router", 5, 3)
		n.addChains(kinds.nft4, "foreign:cri-o", 2, 2)
		n.addSets("foreign:kube-router", 4, 40)
		n.addServers("foreign:unidentified", 1)
		n.nft.Owners = append(n.nft.Owners, &offrampv1.OwnerCount{Owner: "foreign:calico", Count: 1})
	}
	cases := []struct {
		name   string
		mode   offrampv1.ProxyMode
		target offrampv1.Target
		spoil  func(*testNode)
		want   offrampv1.Verdict
		exit   int
	}{
		{"there", nftablesMode, toNFTables, asIs, yes, 0},
		{"unspecified is nftables", nftablesMode, offrampv1.Target_TARGET_UNSPECIFIED, asIs, yes, 0},
		{"of a newer version", nftablesMode, 99, asIs, unsure, 4},
		{"back on ipvs", ipvsMode, toIPVS, asIs, yes, 0},
		{"none, proven", noMode, toNone, asIs, yes, 0},
		{"another mode", iptablesMode, toNFTables, asIs, blocked, 2},
		{"another mode, half blind", iptablesMode, toNFTables, cannotRead(kinds.ipsets), blocked, 2},
		{"unknown mode", unknownMode, toNFTables, asIs, unsure, 4},
		{"nothing but other people's things", unknownMode, toNone, others, yes, 0},
		{"other people's things under nftables", nftablesMode, toNFTables, others, yes, 0},
		{"half blind", nftablesMode, toNFTables, cannotRead(kinds.legacy4), unsure, 4},
		{"blind for what does not matter", nftablesMode, toNFTables, cannotRead(kinds.history), yes, 0},
		{"leftovers", nftablesMode, toNFTables, func(n *testNode) { n.addSets("kube-proxy/ipvs", 17, 125) }, yes, 3},
		{"leftovers and none", noMode, toNone, func(n *testNode) { n.addMode(ipvsMode) }, yes, 3},
		{"sick", nftablesMode, toNFTables, func(n *testNode) { n.now.HealthStatus = 503 }, blocked, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := clean(c.mode)
			c.spoil(n)
			got := assess(n, c.target)
			code := readiness.ExitCode(got.GetVerify(), got.GetLeftovers())
			if got.GetVerify() != c.want || code != c.exit {
				t.Errorf("verify is %v, exit code %d, want %v, %d; %v", got.GetVerify(), code, c.want, c.exit, got.GetFindings())
			}
		})
	}
}

func TestLeftoversAreCountedExactly(t *testing.T) {
	n := clean(nftablesMode)
	n.addMode(ipvsMode)
	n.addServers("foreign:unidentified", 50)
	n.addSets("foreign:kube-router", 60, 600)
	n.addChains(kinds.nft6, "kube-proxy/iptables", 7, 8)
	n.fill(kinds.legacy4, iptablesMode, "kube-proxy/iptables")
	want := &offrampv1.Leftovers{
		VirtualServers: 3, Links: 1, LinkAddresses: 3, Ipsets: 34, IpsetEntries: 5,
		Chains: 5 + 5 + 7 + 5, Jumps: 3 + 3 + 8 + 3,
	}
	if diff := cmp.Diff(want, assess(n, toNFTables).GetLeftovers(), protocmp.Transform()); diff != "" {
		t.Errorf("leftovers differ (-want +got):\n%s", diff)
	}
	// Under an unknown mode the same things are undecided, and nothing is counted.
	n.proxy.RunningMode = unknownMode
	want = &offrampv1.Leftovers{Undecided: true}
	if diff := cmp.Diff(want, assess(n, toNFTables).GetLeftovers(), protocmp.Transform()); diff != "" {
		t.Errorf("leftovers differ (-want +got):\n%s", diff)
	}
}

// A node whose distribution switched from iptables-legacy to iptables-nft: the chains that ipvs mode shared with iptables
// mode are of the past in the one backend and in use in the other.
func TestSharedChainsOfThePastAreLeftOver(t *testing.T) {
	n := clean(iptablesMode)
	n.fill(kinds.legacy4, ipvsMode, "kube-proxy/ipvs")
	want := &offrampv1.Leftovers{Chains: 5, Jumps: 3}
	if diff := cmp.Diff(want, assess(n, toIPTables).GetLeftovers(), protocmp.Transform()); diff != "" {
		t.Errorf("leftovers differ (-want +got):\n%s", diff)
	}
}

func TestPhase(t *testing.T) {
	traces := func(n *testNode) {
		n.setSysctl("net/ipv4/vs/conntrack", "1")
		n.setSysctl("net/ipv4/vs/expire_nodest_conn", "1")
		n.setSysctl("net/ipv4/vs/expire_quiescent_template", "1")
	}
	remembers := func(n *testNode) {
		n.history.ModeChanges = []*offrampv1.ModeChange{{From: ipvsMode, To: nftablesMode}}
	}
	set := func(n *testNode) { n.addSets("kube-proxy/ipvs", 1, 0) }
	cases := []struct {
		name  string
		mode  offrampv1.ProxyMode
		spoil func(*testNode)
		want  offrampv1.Phase
	}{
		{"on ipvs", ipvsMode, asIs, offrampv1.Phase_PHASE_ON_IPVS},
		{"dirty", nftablesMode, set, offrampv1.Phase_PHASE_SWITCHED_DIRTY},
		{"dirty, and half blind", nftablesMode, func(n *testNode) {
			set(n)
			n.unreadable[kinds.ipvs] = true
		}, offrampv1.Phase_PHASE_SWITCHED_DIRTY},
		{"dirty without any kube-proxy", unknownMode, set, offrampv1.Phase_PHASE_SWITCHED_DIRTY},
		{"dirty, mode unknown, blind", unknownMode, func(n *testNode) {
			set(n)
			n.proxy.HostProcessesVisible = false
		}, offrampv1.Phase_PHASE_UNKNOWN},
		{"never synced", iptablesMode, func(n *testNode) { n.tables[kinds.nft4].SharedChainsMode = ipvsMode }, offrampv1.Phase_PHASE_SWITCHED_DIRTY},
		{"iptables mode's leftovers are not of ipvs", nftablesMode, func(n *testNode) {
			n.addChains(kinds.nft4, "kube-proxy/iptables", 9, 0)
		}, offrampv1.Phase_PHASE_UNAFFECTED},
		{"done, by its kernel", nftablesMode, traces, offrampv1.Phase_PHASE_DONE},
		{"done, by its memory", nftablesMode, remembers, offrampv1.Phase_PHASE_DONE},
		{"other IPVS software", nftablesMode, func(n *testNode) { n.setSysctl("net/ipv4/vs/conntrack", "1") }, offrampv1.Phase_PHASE_UNAFFECTED},
		{"unaffected", iptablesMode, asIs, offrampv1.Phase_PHASE_UNAFFECTED},
		{"nothing at all", unknownMode, asIs, offrampv1.Phase_PHASE_UNAFFECTED},
		{"sets unreadable", nftablesMode, cannotRead(kinds.ipsets), offrampv1.Phase_PHASE_UNKNOWN},
		{"sysctls unreadable", nftablesMode, cannotRead(kinds.sysctls), offrampv1.Phase_PHASE_UNKNOWN},
		{"history unreadable", nftablesMode, cannotRead(kinds.history), offrampv1.Phase_PHASE_UNKNOWN},
		{"kube-proxy unreadable", nftablesMode, cannotRead(kinds.kubeProxy), offrampv1.Phase_PHASE_UNKNOWN},
	}
	for _, c := range cases {
		n := clean(c.mode)
		c.spoil(n)
		if got := assess(n, toNFTables).GetPhase(); got != c.want {
			t.Errorf("%s: phase %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSectionsThatCannotBeBelieved(t *testing.T) {
	cases := map[string]func(*offrampv1.NodeFacts){
		"missing": func(facts *offrampv1.NodeFacts) { facts.Sections = facts.GetSections()[1:] },
		"twice": func(facts *offrampv1.NodeFacts) {
			facts.Sections = append(facts.GetSections(), facts.GetSections()[0])
		},
		"three times": func(facts *offrampv1.NodeFacts) {
			facts.Sections = append(facts.GetSections(), facts.GetSections()[0], facts.GetSections()[0])
		},
		"present but empty-handed": func(facts *offrampv1.NodeFacts) { facts.GetSections()[0].Stable.Content = nil },
		"of another kind": func(facts *offrampv1.NodeFacts) {
			facts.GetSections()[0].Stable.Content = facts.GetSections()[1].GetStable().GetContent()
		},
		"no state":    func(facts *offrampv1.NodeFacts) { facts.GetSections()[0].Stable.State = 0 },
		"newer state": func(facts *offrampv1.NodeFacts) { facts.GetSections()[0].Stable.State = 99 },
		"nothing":     func(facts *offrampv1.NodeFacts) { facts.GetSections()[0].Stable = nil },
	}
	for name, spoil := range cases {
		facts := clean(nftablesMode).facts()
		spoil(facts)
		got := readiness.Assess(facts, toNFTables)
		if got.GetVerify() != unsure || find(got, "section-unreadable") == nil {
			t.Errorf("%s: verify is %v with %v", name, got.GetVerify(), got.GetFindings())
		}
	}
	if got := readiness.Assess(nil, toNone); got.GetVerify() != unsure || got.GetReady() != unsure {
		t.Errorf("no facts at all: %v", got)
	}
}

func BenchmarkAssess(b *testing.B) {
	n := clean(iptablesMode)
	n.addMode(ipvsMode)
	n.proxy.RunningMode = iptablesMode
	facts := n.facts()
	b.ReportAllocs()
	for b.Loop() {
		readiness.Assess(facts, toNFTables)
	}
}
