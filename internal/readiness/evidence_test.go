package readiness_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"github.com/google/go-cmp/cmp"
)

// What people read, word for word.
func TestEvidence(t *testing.T) {
	cases := []struct {
		capture, rule string
		target        offrampv1.Target
		want          []string
	}{
		{"ipvs-then-iptables", "leftover-virtual-servers", toIPTables, []string{"virtual servers: 85"}},
		{"ipvs-then-iptables", "leftover-ipvs-link", toIPTables, []string{"link kube-ipvs0 with 68 addresses"}},
		{"ipvs-then-iptables", "leftover-ipsets", toIPTables, []string{"ipsets: 34 with 261 entries"}},
		{"ipvs-then-iptables", "leftover-chains", toIPTables, []string{"chains: 12", "jumps to them: 10"}},
		{"ipvs-then-iptables", "ipvs-sysctls-left", toIPTables, []string{
			"net/ipv4/vs/conntrack = 1", "net/ipv4/vs/expire_nodest_conn = 1", "net/ipv4/vs/expire_quiescent_template = 1",
			"net/ipv4/conf/all/arp_ignore = 1", "net/ipv4/conf/all/arp_announce = 2",
		}},
		{"ipvs-then-nftables", "leftover-ipsets", toNFTables, []string{"ipsets: 17 with 125 entries"}},
		{"iptables-sync-failed", "kube-proxy-not-in-sync", toNFTables, []string{
			"IPv4: no sync yet, 0 failures", "IPv6: no sync yet, 0 failures",
		}},
		{"iptables-sync-failed", "modes-disagree", toIPTables, []string{
			"nat KUBE-SERVICES was filled by ipvs mode (iptables-nft, IPv4)", "running: iptables",
		}},
		{"iptables-sync-failed", "unattributed-virtual-servers", toIPTables, []string{"virtual servers of unknown: 80"}},
		{"iptables-sync-failed", "foreign-virtual-servers", toNFTables, nil},
		{"ipvs", "on-ipvs", toNFTables, []string{"running: ipvs"}},
		{"iptables", "other-mode", toNFTables, []string{"running: iptables", "the target is nftables"}},
		{"after-kube-proxy-cleanup", "running-mode-unknown", toNFTables, []string{
			"0 processes named kube-proxy in sight", "ipsets of kube-proxy/ipvs: 17",
			"chains (iptables-nft, IPv4, filter) of kube-proxy/iptables: 4",
			"chains (iptables-nft, IPv4, nat) of kube-proxy/iptables: 174",
			"chains (iptables-nft, IPv4, nat) of kube-proxy/shared: 1",
			"chains (iptables-nft, IPv6, filter) of kube-proxy/iptables: 4",
			"chains (iptables-nft, IPv6, nat) of kube-proxy/iptables: 170",
			"chains (iptables-nft, IPv6, nat) of kube-proxy/shared: 1",
		}},
	}
	for _, c := range cases {
		t.Run(c.capture+"/"+c.rule, func(t *testing.T) {
			finding := find(readiness.Assess(captureFacts(t, c.capture, 0), c.target), c.rule)
			if diff := cmp.Diff(c.want, finding.GetEvidence()); diff != "" {
				t.Errorf("evidence differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvidenceNamesWhatWasSeen(t *testing.T) {
	cases := []struct {
		rule   string
		mode   offrampv1.ProxyMode
		target offrampv1.Target
		spoil  func(*testNode)
		want   string
	}{
		{"kernel-too-old", ipvsMode, toNFTables, func(n *testNode) {
			n.kernel = &offrampv1.KernelFacts{Release: "4.18.0-553.el8_10.x86_64", Major: 4, Minor: 18}
		}, "kernel 4.18.0-553.el8_10.x86_64, nftables mode asks for 5.13"},
		{"foreign-virtual-servers", ipvsMode, toNFTables, func(n *testNode) { n.addServers("foreign:unidentified", 1) },
			"TCP 192.0.2.1 port 80, scheduler wlc, foreign:unidentified"},
		{"foreign-virtual-servers", ipvsMode, toNFTables, func(n *testNode) {
			n.addServers("foreign:fwmark", 1)
			sample := n.ipvs.GetSamples()[len(n.ipvs.GetSamples())-1]
			sample.Protocol, sample.Fwmark = "FWM", 7
		}, "FWM 7, scheduler wlc, foreign:fwmark"},
		{"unattributed-virtual-servers", iptablesMode, toIPTables, func(n *testNode) { n.addServers("unknown", 1) },
			"TCP 192.0.2.1 port 80, scheduler wlc, unknown: because"},
		{"foreign-references", ipvsMode, toNFTables, func(n *testNode) {
			n.tables[kinds.nft6].ForeignReferences = []*offrampv1.ForeignReference{
				{Table: "nat", FromChain: "CNI-HOSTPORT-SETMARK", ToChain: "KUBE-MARK-MASQ"},
			}
		}, "iptables-nft, IPv6: nat CNI-HOSTPORT-SETMARK jumps to KUBE-MARK-MASQ"},
		{"section-unreadable", nftablesMode, toNFTables, cannotRead(kinds.nft4), "iptables nft ipv4: no permission"},
		{"kube-proxy-not-in-sync", iptablesMode, toIPTables, func(n *testNode) {
			n.now.Syncs[1] = &offrampv1.FamilySync{Family: 2, LastQueued: second(6), LastSync: second(5), Failures: 3}
		}, "IPv6: last sync 1970-01-01T00:00:05Z is before the last queued change 1970-01-01T00:00:06Z, 3 failures"},
		{"kube-proxy-not-in-sync", iptablesMode, toIPTables, func(n *testNode) { n.now.HealthStatus = 503 },
			"/healthz answers with status 503"},
		{"modes-disagree", ipvsMode, toNFTables, func(n *testNode) {
			n.proxy.ConfiguredMode, n.proxy.ConfiguredModeSource = nftablesMode, "/configz"
		}, "configured: nftables (/configz)"},
		{"running-mode-unknown", unknownMode, toNFTables, func(n *testNode) {
			n.proxy.Endpoints = []*offrampv1.KubeProxyEndpoint{{Url: "http://[::1]:10249/proxyMode", Error: "refused"}}
		}, "http://[::1]:10249/proxyMode: refused"},
	}
	for _, c := range cases {
		n := clean(c.mode)
		c.spoil(n)
		finding := find(assess(n, c.target), c.rule)
		if !slices.Contains(finding.GetEvidence(), c.want) {
			t.Errorf("%s: evidence is %q, want %q in it", c.rule, finding.GetEvidence(), c.want)
		}
	}
}

// Remedies may be followed on production nodes: none may send anybody into upstream's traps.
func TestRemediesDoNoHarm(t *testing.T) {
	forRandomNodes(t, func(_ *rand.Rand, _ *offrampv1.NodeFacts, got *offrampv1.Assessment) {
		for _, finding := range got.GetFindings() {
			for _, trap := range []string{"flush", "ipvsadm -C", "iptables -F", "nft flush", "ipset destroy"} {
				if strings.Contains(finding.GetRemedy(), trap) {
					t.Errorf("%s advises %q", finding.GetId(), trap)
				}
			}
		}
	})
}
