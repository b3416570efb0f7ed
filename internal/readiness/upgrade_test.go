package readiness_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func standing(name string, n *testNode, target offrampv1.Target) readiness.Standing {
	return readiness.Standing{Node: name, Assessment: assess(n, target)}
}

func oldKernel(n *testNode) *testNode {
	n.kernel = &offrampv1.KernelFacts{Release: "5.10.0", Major: 5, Minor: 10}
	return n
}

func defaulted(n *testNode) *testNode {
	n.proxy.ConfiguredModeOrigin = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	return n
}

func gated(n *testNode) *testNode {
	n.proxy.Settings = &offrampv1.KubeProxySettings{FeatureGates: []string{"KubeProxyIPVS=true"}, IptablesMasqueradeBit: -1, NftablesMasqueradeBit: -1}
	return n
}

// The answers were written from the timeline (KEP-5495, KEP-5343) before the code.
func TestUpgrade(t *testing.T) {
	nft, ipvs := clean(nftablesMode), clean(ipvsMode)
	dirty := clean(nftablesMode)
	dirty.addSets("kube-proxy/ipvs", 17, 1)
	unknown := clean(iptablesMode)
	unknown.proxy.RunningMode = unknownMode
	cases := []struct {
		name, version string
		node          *testNode
		want          offrampv1.Verdict
		reason        string
	}{
		{"nftables", "1.43", nft, yes, ""},
		{"ipvs below the end", "1.39", ipvs, yes, "deprecated but served"},
		{"ipvs", "1.40", ipvs, blocked, "1.40 does not start"},
		{"ipvs, a patch version", "v1.40.3", ipvs, blocked, "1.40 does not start"},
		{"ipvs behind the gate", "1.42", gated(clean(ipvsMode)), yes, "until 1.42"},
		{"ipvs behind the gate, too late", "1.43", gated(clean(ipvsMode)), blocked, "gone in 1.43"},
		{"no mode, old kernel", "1.40", defaulted(oldKernel(clean(iptablesMode))), blocked, "kernel is too old"},
		{"no mode, old kernel, below", "1.39", defaulted(oldKernel(clean(iptablesMode))), yes, ""},
		{"no mode, new kernel", "1.40", defaulted(clean(iptablesMode)), yes, ""},
		{"explicit, old kernel", "1.40", oldKernel(clean(iptablesMode)), yes, ""},
		{"dirty", "1.43", dirty, yes, "cannot clean any more"},
		{"dirty, below", "1.42", dirty, yes, ""},
		{"unknown", "1.38", unknown, unsure, "not known"},
	}
	for _, c := range cases {
		got, ok := readiness.Upgrade(c.version, cleanCluster(), []readiness.Standing{standing("a", c.node, toNFTables)})
		reasons := strings.Join(got.GetReasons(), "\n")
		if !ok || got.GetVerdict() != c.want || !strings.Contains(reasons, c.reason) || (c.reason == "") != (reasons == "") {
			t.Errorf("%s: %v %v %q, want %v because of %q", c.name, ok, got.GetVerdict(), reasons, c.want, c.reason)
		}
	}
}

func TestUpgradeOfAFleet(t *testing.T) {
	facts := cleanCluster()
	facts.KubeProxyConfigs[0].Mode = ipvsMode
	nodes := []readiness.Standing{
		standing("a", clean(nftablesMode), toNFTables), {Node: "b", Silent: true}, {Node: "win", NotApplicable: true},
	}
	for range 5 {
		nodes = append(nodes, standing("x", clean(ipvsMode), toNFTables))
	}
	got, _ := readiness.Upgrade("1.40", facts, nodes)
	want := []string{
		"the cluster's configuration asks for ipvs mode, with which kube-proxy 1.40 does not start: ConfigMap kube-system/kube-proxy asks for ipvs mode",
		"5 nodes: on ipvs, with which kube-proxy 1.40 does not start (x x x …)",
		"1 node: not heard of in time (b)",
	}
	if strings.Join(got.GetReasons(), "\n") != strings.Join(want, "\n") || got.GetVerdict() != blocked {
		t.Errorf("%v %q", got.GetVerdict(), got.GetReasons())
	}
	silentOnly, _ := readiness.Upgrade("1.38", cleanCluster(), nodes[:2])
	if silentOnly.GetVerdict() != unsure {
		t.Errorf("with a silent node: %v", silentOnly)
	}
	for _, version := range []string{"", "2.1", "one.forty", "1", "1.x"} {
		if _, ok := readiness.Upgrade(version, nil, nil); ok {
			t.Errorf("%q is taken for a version", version)
		}
	}
}

func TestTimelineIsInOrder(t *testing.T) {
	last := ""
	for _, milestone := range readiness.Timeline() {
		if milestone.GetVersion() < last || milestone.GetWhat() == "" || milestone.GetSource() == "" {
			t.Errorf("%v after %s", milestone, last)
		}
		last = milestone.GetVersion()
		if planned := milestone.GetVersion() > "1.37"; milestone.GetPlanned() != planned {
			t.Errorf("%v: planned is %v", milestone, milestone.GetPlanned())
		}
	}
}
