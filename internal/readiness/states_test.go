package readiness_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// stateCase is a node state that users reported (STATE-nn), with the finding and the evidence that a person expects of it.
type stateCase struct {
	state   string
	node    *testNode
	cluster func(*offrampv1.ClusterFacts)
	target  offrampv1.Target
	finding string
	// evidence is a part of what is said, so that a finding for another reason does not count.
	evidence string
}

func with(mode offrampv1.ProxyMode, change func(*testNode)) *testNode {
	n := clean(mode)
	change(n)
	return n
}

func reportedStates() []stateCase {
	none := func(*offrampv1.ClusterFacts) {}
	module := func(name string, mode offrampv1.ProxyMode) func(*testNode) {
		return func(n *testNode) {
			n.host.Features = []*offrampv1.KernelFeature{{Name: name, State: offrampv1.FeatureState_FEATURE_STATE_MISSING, NeededBy: []offrampv1.ProxyMode{mode}}}
		}
	}
	program := func(name string) func(*testNode) {
		return func(n *testNode) {
			n.proxy.Processes = []*offrampv1.KubeProxyProcess{{Pid: 7, Name: name, Program: name}}
		}
	}
	return []stateCase{
		{"01", defaulted(oldKernel(clean(iptablesMode))), none, toNFTables, "mode-not-explicit", "names no mode"},
		{"01", defaulted(oldKernel(clean(iptablesMode))), none, toNFTables, "kernel-too-old", "5.10.0"},
		{"02", with(iptablesMode, func(n *testNode) { n.addServers("kube-proxy/ipvs", 3); n.addSets("kube-proxy/ipvs", 17, 5) }), none, toIPTables, "leftover-virtual-servers", "virtual servers: 3"},
		{"20", with(noMode, func(n *testNode) {
			n.addMode(ipvsMode)
			n.now = &offrampv1.KubeProxyVolatile{}
			n.proxy.Processes = nil
		}), none, toNone, "leftover-ipvs-link", "kube-ipvs0"},
		{"26", with(nftablesMode, func(n *testNode) {
			n.addChains(kinds.nft4, "kube-proxy/ipvs", 1, 1)
			n.addSets("kube-proxy/ipvs", 1, 0)
		}), none, toNFTables, "leftover-chains", "jumps to them: 1"},
		{"30", with(ipvsMode, func(n *testNode) { n.proxy.ConfiguredMode = nftablesMode }), none, toNFTables, "modes-disagree", "configured: nftables"},
		{"34", with(ipvsMode, func(n *testNode) {
			n.addresses.Samples = []*offrampv1.NodeAddress{{Address: "192.0.2.10", Primary: true}, {Address: "198.51.100.7"}}
			n.traffic.NodePorts = []*offrampv1.NodePortTraffic{{Protocol: "TCP", Address: "198.51.100.7", Port: 30080, Connections: 2, Clients: []string{"203.0.113.4"}}}
		}), none, toNFTables, "node-ports-on-other-addresses", "198.51.100.7 port 30080: 2 connections, now from 203.0.113.4"},
		{"35", with(ipvsMode, func(n *testNode) {
			n.nft.Samples = []*offrampv1.NftTable{{Family: "inet", Name: "mine", Owner: "unknown", NewerFeatures: []string{"set ifnames: type ifname"}}}
		}), none, toNFTables, "nft-version-clash", "table inet mine"},
		{"36", with(ipvsMode, func(n *testNode) {
			n.kernel = &offrampv1.KernelFacts{Release: "4.18.0-553.el8_10.x86_64", Major: 4, Minor: 18}
		}), none, toNFTables, "kernel-too-old", "Enterprise Linux 8"},
		{"38", with(ipvsMode, module("nft_compat", iptablesMode)), none, toIPTables, "kernel-feature-missing", "nft_compat"},
		{"41", with(iptablesMode, func(n *testNode) { n.now.LocalhostNodeportPackets = new(uint64); *n.now.LocalhostNodeportPackets = 9 }), none, toNFTables, "localhost-node-ports", "9 packets"},
		{"42", with(ipvsMode, func(n *testNode) { n.nft.DropChains = []string{"inet firewall input"} }), none, toNFTables, "host-firewall-drops", "inet firewall input"},
		{"45", nil, func(c *offrampv1.ClusterFacts) { c.Networks[0].Version = "v3.29.0" }, toNFTables, "network-plugin-cannot-follow", "calico v3.29.0"},
		{"54", with(ipvsMode, program("k3s")), none, toNFTables, "on-ipvs", "running: ipvs"},
		{"55", nil, func(c *offrampv1.ClusterFacts) {
			c.KubeProxies = []*offrampv1.KubeProxyWorkload{{Namespace: "kube-system", Name: "kube-proxy", Kind: "Pod", Mode: ipvsMode}}
			c.KubeProxyConfigs = nil
		}, toNFTables, "ipvs-configured", "Pod kube-system/kube-proxy asks for ipvs mode"},
		{"56", nil, func(c *offrampv1.ClusterFacts) {
			c.KubeProxyConfigs[0].Name, c.KubeProxyConfigs[0].Key, c.KubeProxyConfigs[0].Mode = "kube-proxy-config", "config", ipvsMode
			c.KubeProxies[0].ConfigMap, c.KubeProxies[0].Mode = "kube-system/kube-proxy-config", iptablesMode
		}, toNFTables, "ipvs-configured", "kube-proxy-config asks for ipvs mode"},
		{"clash", nil, func(c *offrampv1.ClusterFacts) { c.Services[0].ExternalIps = []string{"192.0.2.10"} }, toNFTables, "address-clash", "default/web: 192.0.2.10 is node a"},
	}
}

func TestReportedStatesAreFoundWithTheirEvidence(t *testing.T) {
	for _, c := range reportedStates() {
		t.Run("State"+c.state+"/"+c.finding, func(t *testing.T) {
			var found *offrampv1.Finding
			if c.node != nil {
				found = find(assess(c.node, c.target), c.finding)
			} else {
				cluster := cleanCluster()
				c.cluster(cluster)
				found = find(&offrampv1.Assessment{Findings: readiness.AssessCluster(cluster, c.target)}, c.finding)
			}
			if !strings.Contains(strings.Join(found.GetEvidence(), "\n"), c.evidence) {
				t.Errorf("found %v, want evidence %q", found, c.evidence)
			}
		})
	}
}

// STATE-14: a virtual server whose Service was deleted, told while ipvs mode runs.
func TestState14(t *testing.T) {
	n := clean(ipvsMode)
	n.ipvs.List = facts.ListDigest(servers, []string{"TCP 10.96.0.77:80"})
	around := readiness.Surroundings{Unexplained: map[offrampv1.ListName][]string{servers: {"TCP 10.96.0.77:80"}}}
	if got := find(readiness.AssessIn(n.facts(), toNFTables, around), "unexplained-virtual-servers"); strings.Join(got.GetEvidence(), " ") != "TCP 10.96.0.77:80" {
		t.Errorf("found %v", got)
	}
}
