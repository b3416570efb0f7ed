package readiness_test

import (
	"slices"
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"github.com/google/go-cmp/cmp"
)

func stepIDs(steps []*offrampv1.Step) []string {
	ids := []string{}
	for _, step := range steps {
		id := step.GetId()
		if step.GetWaits() {
			id += " (waits)"
		}
		ids = append(ids, id)
	}
	return ids
}

// featured is a node of whose kernel so much is known about what nftables mode needs.
func featured(n *testNode, state offrampv1.FeatureState) *testNode {
	n.host.Features = []*offrampv1.KernelFeature{{Name: "nft_fib", State: state, NeededBy: []offrampv1.ProxyMode{nftablesMode}}}
	return n
}

// What a person would do next for each fleet, written before the code.
func TestSteps(t *testing.T) {
	ipvsConfig := func() *offrampv1.ClusterFacts {
		facts := cleanCluster()
		facts.KubeProxyConfigs[0].Mode = ipvsMode
		facts.KubeProxyConfigs[0].Settings.NodePortAddresses = []string{"primary"}
		return facts
	}
	dirty := clean(nftablesMode)
	dirty.addSets("kube-proxy/ipvs", 17, 1)
	soaking := standing("soaking", clean(nftablesMode), toNFTables)
	soaking.Soaking = true
	lvscare := clean(ipvsMode)
	lvscare.ipvs.Samples = append(lvscare.ipvs.Samples, &offrampv1.VirtualServer{Protocol: "TCP", Address: "10.103.97.2", Port: 6443, Owner: "foreign:unidentified"})
	neverSynced := clean(iptablesMode)
	neverSynced.tables[kinds.nft4].SharedChainsMode = ipvsMode
	blind := clean(ipvsMode)
	blind.unreadable[kinds.ipsets] = true
	dead := cleanCluster()
	dead.KubeProxyConfigs[0].Settings.IpvsStrictArp = true
	oldPlugin := ipvsConfig()
	oldPlugin.Networks[0].Version = "v3.28.0"
	cases := []struct {
		name  string
		facts *offrampv1.ClusterFacts
		nodes []readiness.Standing
		want  []string
	}{
		{"done", cleanCluster(), []readiness.Standing{standing("a", clean(nftablesMode), toNFTables)}, []string{}},
		{"all on ipvs", ipvsConfig(), []readiness.Standing{standing("a", clean(ipvsMode), toNFTables), standing("b", clean(ipvsMode), toNFTables)},
			[]string{"first-canary", "switch-pool (waits)"}},
		{"an old kernel", ipvsConfig(), []readiness.Standing{standing("a", oldKernel(clean(ipvsMode)), toNFTables)}, []string{"rebuild-images", "switch-pool (waits)"}},
		{"a module is missing", ipvsConfig(), []readiness.Standing{standing("a", featured(clean(ipvsMode), offrampv1.FeatureState_FEATURE_STATE_MISSING), toNFTables)},
			[]string{"rebuild-images", "switch-pool (waits)"}},
		{"the modules are not in sight", ipvsConfig(), []readiness.Standing{standing("a", featured(clean(ipvsMode), offrampv1.FeatureState_FEATURE_STATE_UNKNOWN), toNFTables)},
			[]string{"first-canary", "switch-pool (waits)"}},
		{"a plugin that cannot follow", oldPlugin, []readiness.Standing{standing("a", clean(ipvsMode), toNFTables)},
			[]string{"upgrade-network-plugin", "first-canary (waits)", "switch-pool (waits)"}},
		{"no mode written", nil, []readiness.Standing{standing("a", defaulted(clean(iptablesMode)), toNFTables)}, []string{"pin-mode"}},
		{"one switched and dirty", ipvsConfig(), []readiness.Standing{standing("a", dirty, toNFTables), standing("b", clean(ipvsMode), toNFTables)},
			[]string{"clean-up", "switch-pool (waits)"}},
		{"one soaks", ipvsConfig(), []readiness.Standing{soaking, standing("b", clean(ipvsMode), toNFTables)}, []string{"soak", "switch-pool (waits)"}},
		{"a silent one", cleanCluster(), []readiness.Standing{{Node: "a", Silent: true}}, []string{"hear-from-every-node"}},
		{"Windows", cleanCluster(), []readiness.Standing{{Node: "win", NotApplicable: true, Silent: true}}, []string{}},
		{"API server through IPVS", ipvsConfig(), []readiness.Standing{standing("a", lvscare, toNFTables)}, []string{"protect-other-software", "switch-pool (waits)"}},
		{"never synced", cleanCluster(), []readiness.Standing{standing("a", neverSynced, toIPTables)}, []string{"bring-kube-proxy-in-line"}},
		{"blind", ipvsConfig(), []readiness.Standing{standing("a", blind, toNFTables)}, []string{"see-every-node", "switch-pool (waits)"}},
		{"dead settings", dead, []readiness.Standing{standing("a", clean(nftablesMode), toNFTables)}, []string{"delete-dead-settings"}},
	}
	for _, c := range cases {
		got := readiness.Steps(toNFTables, readiness.AssessCluster(c.facts, toNFTables), c.nodes)
		if diff := cmp.Diff(c.want, stepIDs(got)); diff != "" {
			t.Errorf("%s: steps differ (-want +got):\n%s", c.name, diff)
		}
		for _, step := range got {
			if step.GetTitle() == "" || step.GetWhy() == "" || len(step.GetCommands()) == 0 {
				t.Errorf("%s: step %v lacks something", c.name, step)
			}
		}
	}
}

func TestAcceptedFindingsNeedNoStep(t *testing.T) {
	node := standing("a", defaulted(clean(iptablesMode)), toIPTables)
	word := map[string]*offrampv1.Acceptance{"mode-not-explicit": {Author: "jo"}}
	if got := stepIDs(readiness.Steps(toIPTables, nil, []readiness.Standing{node})); len(got) != 1 {
		t.Fatalf("before: %v", got)
	}
	node.Assessment = readiness.Accept(node.Assessment, word)
	if got := stepIDs(readiness.Steps(toIPTables, nil, []readiness.Standing{node})); len(got) != 0 {
		t.Errorf("accepted, and still to be done: %v", got)
	}
}

func TestAcceptedFindingsOfTheClusterNeedNoStep(t *testing.T) {
	facts := cleanCluster()
	facts.KubeProxyConfigs[0].Settings.IpvsStrictArp = true
	findings := readiness.AssessCluster(facts, toNFTables)
	if got := stepIDs(readiness.Steps(toNFTables, findings, nil)); len(got) != 1 || got[0] != "delete-dead-settings" {
		t.Fatalf("before: %v", got)
	}
	readiness.AcceptFindings(findings, map[string]*offrampv1.Acceptance{"dead-ipvs-settings": {Author: "jo"}})
	if got := stepIDs(readiness.Steps(toNFTables, findings, nil)); len(got) != 0 {
		t.Errorf("accepted, and still to be done: %v", got)
	}
}

func TestTheCanaryIsWellChosen(t *testing.T) {
	node := func(name, pool string, connections uint64) readiness.Standing {
		s := standing(name, clean(ipvsMode), toNFTables)
		s.Pool, s.Connections = pool, connections
		return s
	}
	master := node("master", "big", 0)
	master.ControlPlane = true
	cordoned := node("cordoned", "big", 0)
	cordoned.Unschedulable = true
	old := standing("old", oldKernel(clean(ipvsMode)), toNFTables)
	old.Pool = "big"
	nodes := []readiness.Standing{node("small", "small", 0), node("busy", "big", 90), node("calm", "big", 3), master, cordoned, old}
	for range 10 {
		steps := readiness.Steps(toNFTables, nil, nodes)
		i := slices.IndexFunc(steps, func(step *offrampv1.Step) bool { return step.GetId() == "first-canary" })
		if i < 0 || steps[i].GetNodeSamples()[0] != "calm" {
			t.Fatalf("canary of %v", steps)
		}
		nodes = append(nodes[1:], nodes[0])
	}
}

// The commands of the step for another image find the nodes that it is about.
func TestStepForAnImageNamesItsFindings(t *testing.T) {
	missing := offrampv1.FeatureState_FEATURE_STATE_MISSING
	for want, node := range map[string]*testNode{
		"kubectl offramp nodes --finding kernel-feature-missing": featured(clean(ipvsMode), missing),
		"kubectl offramp nodes --finding kernel-too-old":         oldKernel(clean(ipvsMode)),
	} {
		steps := readiness.Steps(toNFTables, nil, []readiness.Standing{standing("a", node, toNFTables)})
		if got := steps[0].GetCommands(); len(got) != 2 || got[0] != want {
			t.Errorf("commands %q, want %q first of two", got, want)
		}
	}
}
