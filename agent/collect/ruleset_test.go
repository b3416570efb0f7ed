package collect

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	sharedNone     = offrampv1.ProxyMode_PROXY_MODE_NONE
	sharedUnknown  = offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	sharedIPVS     = offrampv1.ProxyMode_PROXY_MODE_IPVS
	sharedIPTables = offrampv1.ProxyMode_PROXY_MODE_IPTABLES
)

// testChain is a chain and its rules.
type testChain struct {
	name  string
	base  bool
	rules []rule
}

func jumpRule(to, comment string) rule { return rule{to: []byte(to), comment: []byte(comment)} }

func countChains(table string, chains ...testChain) *offrampv1.IptablesFacts {
	rules := newRuleset(kubeproxy.IPv4)
	rules.addTable(table)
	for _, chain := range chains {
		rules.addChain(table, chain.name, chain.base)
	}
	for _, chain := range chains {
		for _, rule := range chain.rules {
			rules.addRule(table, []byte(chain.name), &rule)
		}
	}
	return rules.facts()
}

func TestRulesetCountsByOwner(t *testing.T) {
	const portals = "kubernetes service portals"
	tests := map[string]struct {
		table  string
		chains []testChain
		want   *offrampv1.IptablesFacts
	}{
		"an empty table": {
			table: "raw",
			want: &offrampv1.IptablesFacts{
				Tables:           []*offrampv1.IptablesTable{{Name: "raw"}},
				SharedChainsMode: sharedNone,
			},
		},
		"rules of built-in chains are nobody's": {
			table:  "nat",
			chains: []testChain{{"PREROUTING", true, []rule{{}, {otherMatches: true}}}},
			want: &offrampv1.IptablesFacts{
				Tables:           []*offrampv1.IptablesTable{{Name: "nat", Chains: 1, Rules: 2}},
				SharedChainsMode: sharedNone,
			},
		},
		"kube-proxy's own jump, twice": {
			table: "nat",
			chains: []testChain{
				{"PREROUTING", true, []rule{jumpRule("KUBE-SERVICES", portals), jumpRule("KUBE-SERVICES", portals)}},
				{"KUBE-SERVICES", false, []rule{{setMatch: true, otherMatches: true, to: []byte("KUBE-MARK-MASQ")}}},
				{"KUBE-MARK-MASQ", false, []rule{{}}},
			},
			want: &offrampv1.IptablesFacts{
				Tables: []*offrampv1.IptablesTable{{Name: "nat", Chains: 3, Rules: 4}},
				Owners: []*offrampv1.ChainCount{{
					Table: "nat", Owner: "kube-proxy/shared", Chains: 2, Rules: 2, Jumps: 2,
					Samples: []string{"KUBE-MARK-MASQ", "KUBE-SERVICES"},
				}},
				DuplicateJumps:   1,
				SharedChainsMode: sharedIPVS,
			},
		},
		"somebody else's jump from a built-in chain, and one from a chain": {
			table: "nat",
			chains: []testChain{
				{"PREROUTING", true, []rule{jumpRule("KUBE-SERVICES", "mine")}},
				{"CNI-HOSTPORT-SETMARK", false, []rule{jumpRule("KUBE-MARK-MASQ", "CNI portfwd masquerade mark")}},
				{"KUBE-SERVICES", false, nil},
				{"KUBE-MARK-MASQ", false, nil},
			},
			want: &offrampv1.IptablesFacts{
				Tables: []*offrampv1.IptablesTable{{Name: "nat", Chains: 4, Rules: 2}},
				Owners: []*offrampv1.ChainCount{
					{Table: "nat", Owner: "foreign:cni-portmap", Chains: 1, Rules: 1, Samples: []string{"CNI-HOSTPORT-SETMARK"}},
					{Table: "nat", Owner: "kube-proxy/shared", Chains: 2, Samples: []string{"KUBE-MARK-MASQ", "KUBE-SERVICES"}},
				},
				SharedChainsMode: sharedUnknown,
				ForeignReferences: []*offrampv1.ForeignReference{
					{Table: "nat", FromChain: "CNI-HOSTPORT-SETMARK", ToChain: "KUBE-MARK-MASQ"},
					{Table: "nat", FromChain: "PREROUTING", ToChain: "KUBE-SERVICES"},
				},
				ForeignReferenceCount: 2,
			},
		},
		"a goto, or a match beside kube-proxy's, makes a jump foreign": {
			table: "filter",
			chains: []testChain{
				{"FORWARD", true, []rule{
					{to: []byte("KUBE-FORWARD"), comment: []byte("kubernetes forwarding rules"), otherMatches: true},
					jumpRule("KUBE-FORWARD", "kubernetes forwarding rules"),
				}},
				{"KUBE-FORWARD", false, nil},
			},
			want: &offrampv1.IptablesFacts{
				Tables: []*offrampv1.IptablesTable{{Name: "filter", Chains: 2, Rules: 2}},
				Owners: []*offrampv1.ChainCount{
					{Table: "filter", Owner: "kube-proxy/shared", Chains: 1, Jumps: 1, Samples: []string{"KUBE-FORWARD"}},
				},
				SharedChainsMode:      sharedNone,
				ForeignReferences:     []*offrampv1.ForeignReference{{Table: "filter", FromChain: "FORWARD", ToChain: "KUBE-FORWARD"}},
				ForeignReferenceCount: 1,
			},
		},
		"jumps of both modes to one shared chain, and kubelet's": {
			table: "filter",
			chains: []testChain{
				{"INPUT", true, []rule{
					jumpRule("KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"),
					{to: []byte("KUBE-PROXY-FIREWALL"), comment: []byte("kubernetes load balancer firewall"), ctStateNew: true},
					jumpRule("KUBE-FIREWALL", ""),
				}},
				{"KUBE-PROXY-FIREWALL", false, nil},
				{"KUBE-FIREWALL", false, []rule{{otherMatches: true}}},
			},
			want: &offrampv1.IptablesFacts{
				Tables: []*offrampv1.IptablesTable{{Name: "filter", Chains: 3, Rules: 4}},
				Owners: []*offrampv1.ChainCount{
					{Table: "filter", Owner: "kube-proxy/iptables", Jumps: 1},
					{Table: "filter", Owner: "kube-proxy/ipvs", Jumps: 1},
					{Table: "filter", Owner: "kube-proxy/shared", Chains: 1, Samples: []string{"KUBE-PROXY-FIREWALL"}},
					{Table: "filter", Owner: "kubelet", Chains: 1, Rules: 1, Jumps: 1, Samples: []string{"KUBE-FIREWALL"}},
				},
				SharedChainsMode: sharedNone,
			},
		},
		"a base chain of nft with a name of its own is nobody's": {
			table: "nat",
			chains: []testChain{
				{"prerouting", true, []rule{jumpRule("KUBE-SERVICES", portals)}},
				{"KUBE-SERVICES", false, []rule{{comment: []byte(
					"kubernetes service nodeports; NOTE: this must be the last rule in this chain")}}},
			},
			want: &offrampv1.IptablesFacts{
				Tables: []*offrampv1.IptablesTable{{Name: "nat", Chains: 2, Rules: 2}},
				Owners: []*offrampv1.ChainCount{
					{Table: "nat", Owner: "kube-proxy/shared", Chains: 1, Rules: 1, Samples: []string{"KUBE-SERVICES"}},
				},
				SharedChainsMode:      sharedIPTables,
				ForeignReferences:     []*offrampv1.ForeignReference{{Table: "nat", FromChain: "prerouting", ToChain: "KUBE-SERVICES"}},
				ForeignReferenceCount: 1,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := countChains(test.table, test.chains...)
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("by hand (-), counted (+):\n%s", diff)
			}
		})
	}
}

func TestRulesetBoundsItsLists(t *testing.T) {
	rules := newRuleset(kubeproxy.IPv6)
	for i := range 50 {
		rules.addChain("nat", fmt.Sprintf("KUBE-SVC-AAAAAAAAAAAAAA%c%c", 'Z'-byte(i%25), 'A'+byte(i/25)), false)
	}
	for range 50 {
		rule := jumpRule("KUBE-SVC-AAAAAAAAAAAAAAAA", "")
		rules.addRule("nat", []byte("MY-CHAIN"), &rule)
	}
	facts := rules.facts()
	if got := len(facts.GetForeignReferences()); got != 20 || facts.GetForeignReferenceCount() != 50 {
		t.Errorf("%d references of %d, want 20 of 50", got, facts.GetForeignReferenceCount())
	}
	samples := facts.GetOwners()[1].GetSamples()
	if len(samples) != 20 || samples[0] != "KUBE-SVC-AAAAAAAAAAAAAABA" || samples[19] != "KUBE-SVC-AAAAAAAAAAAAAAKB" {
		t.Errorf("samples %q, want the first 20 in order", samples)
	}
}

// Names are bytes: they are matched as such, and made printable only for people.
func TestRulesetKeepsOddNames(t *testing.T) {
	facts := countChains("nat",
		testChain{"$(reboot)\xff\n", false, []rule{jumpRule("KUBE-MARK-MASQ", "\xff")}},
		testChain{"KUBE-MARK-MASQ", false, nil},
		testChain{"KUBE-MARK-MASQ\xff", false, nil},
	)
	want := []*offrampv1.ChainCount{
		{Table: "nat", Owner: "foreign:unidentified", Chains: 1, Rules: 1, Samples: []string{"$(reboot)\\xff\n"}},
		{Table: "nat", Owner: "kube-proxy/shared", Chains: 1, Samples: []string{"KUBE-MARK-MASQ"}},
		{Table: "nat", Owner: "unknown", Chains: 1, Samples: []string{`KUBE-MARK-MASQ\xff`}},
	}
	if diff := cmp.Diff(want, facts.GetOwners(), protocmp.Transform()); diff != "" {
		t.Errorf("by hand (-), counted (+):\n%s", diff)
	}
	if got := facts.GetForeignReferences()[0].GetFromChain(); got != "$(reboot)\\xff\n" {
		t.Errorf("reference from %q", got)
	}
}
