package readiness_test

import (
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// cleanCluster is a cluster in which nothing stands in the way: nftables mode, written down, with everything read.
func cleanCluster() *offrampv1.ClusterFacts {
	facts := &offrampv1.ClusterFacts{
		ServerVersion: "v1.37.2",
		Nodes:         []*offrampv1.ClusterNode{{Name: "a", Addresses: []string{"192.0.2.10", "2001:db8::a"}}},
		KubeProxies: []*offrampv1.KubeProxyWorkload{{
			Namespace: "kube-system", Name: "kube-proxy", Kind: "DaemonSet", Version: "v1.37.2", ConfigMap: "kube-system/kube-proxy",
			OldestPodStartedAt: second(100),
		}},
		KubeProxyConfigs: []*offrampv1.KubeProxyConfigMap{{
			Namespace: "kube-system", Name: "kube-proxy", Key: "config.conf", Mode: nftablesMode,
			ModeOrigin: offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT, ChangedAt: second(50),
			Settings: &offrampv1.KubeProxySettings{IptablesMasqueradeBit: -1, NftablesMasqueradeBit: -1},
		}},
		Services: []*offrampv1.ClusterService{{Namespace: "default", Name: "web", ClusterIps: []string{"10.96.0.10"}}},
		Networks: []*offrampv1.ClusterNetwork{{Name: "calico", Version: "v3.30.0", Source: "kube-system/calico-node"}},
	}
	for _, kind := range []string{"nodes", "services", "endpointslices", "daemonsets", "configmaps", "pods", "servicecidrs", "events"} {
		facts.Sources = append(facts.Sources, &offrampv1.ClusterSource{Kind: kind, State: offrampv1.SectionState_SECTION_STATE_PRESENT})
	}
	return facts
}

type clusterCase struct {
	rule, name string
	target     offrampv1.Target
	spoil      func(*offrampv1.ClusterFacts)
	want       answer
}

func cannotList(kind string) func(*offrampv1.ClusterFacts) {
	return func(facts *offrampv1.ClusterFacts) {
		for _, source := range facts.GetSources() {
			if source.GetKind() == kind {
				source.State, source.Error = offrampv1.SectionState_SECTION_STATE_UNREADABLE, "forbidden"
			}
		}
	}
}

func clusterCases() []clusterCase {
	openInfo := answer{severity: info, undecided: true}
	quiet := func(*offrampv1.ClusterFacts) {}
	config := func(change func(*offrampv1.KubeProxyConfigMap)) func(*offrampv1.ClusterFacts) {
		return func(facts *offrampv1.ClusterFacts) { change(facts.GetKubeProxyConfigs()[0]) }
	}
	settings := func(change func(*offrampv1.KubeProxySettings)) func(*offrampv1.ClusterFacts) {
		return config(func(c *offrampv1.KubeProxyConfigMap) { c.Mode = ipvsMode; change(c.GetSettings()) })
	}
	workload := func(change func(*offrampv1.KubeProxyWorkload)) func(*offrampv1.ClusterFacts) {
		return func(facts *offrampv1.ClusterFacts) { change(facts.GetKubeProxies()[0]) }
	}
	network := func(name, version string, replaces bool) func(*offrampv1.ClusterFacts) {
		return func(facts *offrampv1.ClusterFacts) {
			facts.Networks = []*offrampv1.ClusterNetwork{{Name: name, Version: version, ReplacesKubeProxy: replaces, Source: "kube-system/x"}}
		}
	}
	flags := func(mode offrampv1.ProxyMode) func(*offrampv1.ClusterFacts) {
		return func(facts *offrampv1.ClusterFacts) {
			facts.KubeProxyConfigs = nil
			facts.GetKubeProxies()[0].ConfigMap, facts.GetKubeProxies()[0].Mode = "", mode
		}
	}
	return []clusterCase{
		{"mode-not-explicit", "empty", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.ModeOrigin = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED }), says(warning)},
		{"mode-not-explicit", "explicit", toNFTables, quiet, silent},
		{"mode-not-explicit", "no flag", toNFTables, flags(0), says(warning)},
		{"mode-not-explicit", "a flag", toNFTables, flags(iptablesMode), silent},
		{"mode-not-explicit", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"ipvs-configured", "ConfigMap", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.Mode = ipvsMode }), says(warning)},
		{"ipvs-configured", "flag", toNFTables, flags(ipvsMode), says(warning)},
		{"ipvs-configured", "a flag beside a ConfigMap is not read", toNFTables, workload(func(w *offrampv1.KubeProxyWorkload) { w.Mode = ipvsMode }), silent},
		{"ipvs-configured", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"ipvs-gate-set", "true", toNFTables, settings(func(s *offrampv1.KubeProxySettings) { s.FeatureGates = []string{"KubeProxyIPVS=true"} }), says(warning)},
		{"ipvs-gate-set", "none", toNFTables, quiet, silent},
		{"ipvs-gate-set", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"dead-ipvs-settings", "strictARP", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.Settings.IpvsStrictArp = true }), says(info)},
		{"dead-ipvs-settings", "none", toNFTables, quiet, silent},
		{"dead-ipvs-settings", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"settings-nftables-ignores", "bit", toNFTables, settings(func(s *offrampv1.KubeProxySettings) { s.IptablesMasqueradeBit = 10 }), says(warning)},
		{"settings-nftables-ignores", "none", toNFTables, settings(func(*offrampv1.KubeProxySettings) {}), silent},
		{"settings-nftables-ignores", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"node-port-addresses-implicit", "empty", toNFTables, settings(func(*offrampv1.KubeProxySettings) {}), says(info)},
		{"node-port-addresses-implicit", "primary", toNFTables, settings(func(s *offrampv1.KubeProxySettings) { s.NodePortAddresses = []string{"primary"} }), silent},
		{"node-port-addresses-implicit", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"scheduler-without-successor", "sh", toNFTables, settings(func(s *offrampv1.KubeProxySettings) { s.IpvsScheduler = "sh" }), says(info)},
		{"scheduler-without-successor", "none", toNFTables, settings(func(*offrampv1.KubeProxySettings) {}), silent},
		{"scheduler-without-successor", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"cluster-unread", "all read", toNFTables, quiet, silent},
		{"cluster-unread", "events", toNFTables, cannotList("events"), openInfo},
		{"cluster-unread", "nodes", toNFTables, cannotList("nodes"), openInfo},
		{"config-not-in-use", "changed later", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.ChangedAt = second(150) }), says(warning)},
		{"config-not-in-use", "changed before", toNFTables, quiet, silent},
		{"config-not-in-use", "not known when", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.ChangedAt = nil }), silent},
		{"config-not-in-use", "unreadable", toNFTables, cannotList("pods"), notRead},
		{"config-doubtful", "a misspelt field", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.UnknownFields = []string{"ipvs.shceduler"} }), says(warning)},
		{"config-doubtful", "duplicate", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.Lenient = true }), says(warning)},
		{"config-doubtful", "garbage", toNFTables, config(func(c *offrampv1.KubeProxyConfigMap) { c.Error = "not YAML" }), openInfo},
		{"config-doubtful", "fine", toNFTables, quiet, silent},
		{"config-doubtful", "unreadable", toNFTables, cannotList("configmaps"), notRead},
		{"network-plugin-cannot-follow", "Calico 3.29", toNFTables, network("calico", "v3.29.3", false), says(blocker)},
		{"network-plugin-cannot-follow", "Calico 3.30", toNFTables, quiet, silent},
		{"network-plugin-cannot-follow", "Calico 3.29 to iptables", toIPTables, network("calico", "v3.29.3", false), silent},
		{"network-plugin-cannot-follow", "Calico of a digest", toNFTables, network("calico", "", false), openInfo},
		{"network-plugin-cannot-follow", "Flannel", toNFTables, network("flannel", "v0.20.0", false), silent},
		{"network-plugin-cannot-follow", "unreadable", toNFTables, cannotList("daemonsets"), notRead},
		{"kube-proxy-replaced", "Cilium", toNFTables, network("cilium", "v1.18.0", true), says(warning)},
		{"kube-proxy-replaced", "Cilium, to none", toNone, network("cilium", "v1.18.0", true), says(info)},
		{"kube-proxy-replaced", "Cilium beside kube-proxy", toNFTables, network("cilium", "v1.18.0", false), silent},
		{"kube-proxy-replaced", "unreadable", toNFTables, cannotList("daemonsets"), notRead},
		{"version-skew", "newer", toNFTables, workload(func(w *offrampv1.KubeProxyWorkload) { w.Version = "v1.38.0" }), says(warning)},
		{"version-skew", "four older", toNFTables, workload(func(w *offrampv1.KubeProxyWorkload) { w.Version = "v1.33.0" }), says(warning)},
		{"version-skew", "three older", toNFTables, workload(func(w *offrampv1.KubeProxyWorkload) { w.Version = "v1.34.4" }), silent},
		{"version-skew", "a digest", toNFTables, workload(func(w *offrampv1.KubeProxyWorkload) { w.Version = "" }), silent},
		{"version-skew", "unreadable", toNFTables, cannotList("daemonsets"), notRead},
		{"address-clash", "external address", toNFTables, func(facts *offrampv1.ClusterFacts) { facts.Services[0].ExternalIps = []string{"192.0.2.10"} }, says(warning)},
		{"address-clash", "IPv6, written otherwise", toNFTables, func(facts *offrampv1.ClusterFacts) { facts.Services[0].LoadBalancerIps = []string{"2001:DB8:0::a"} }, says(warning)},
		{"address-clash", "none", toNFTables, func(facts *offrampv1.ClusterFacts) { facts.Services[0].ExternalIps = []string{"192.0.2.11", "garbage"} }, silent},
		{"address-clash", "unreadable", toNFTables, cannotList("services"), notRead},
		{"kube-proxy-warned", "of ipvs", toNFTables, func(facts *offrampv1.ClusterFacts) {
			facts.Events = []*offrampv1.KubeProxyEvent{{Node: "a", Reason: "IPVSDeprecation"}}
		}, says(info)},
		{"kube-proxy-warned", "no", toNFTables, quiet, silent},
		{"kube-proxy-warned", "unreadable", toNFTables, cannotList("events"), notRead},
	}
}

func TestClusterRules(t *testing.T) {
	for _, c := range clusterCases() {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			facts := cleanCluster()
			c.spoil(facts)
			got := &offrampv1.Assessment{Findings: readiness.AssessCluster(facts, c.target)}
			checkClusterAnswer(t, got, c.rule, c.want)
		})
	}
}

func checkClusterAnswer(t *testing.T, got *offrampv1.Assessment, rule string, want answer) {
	t.Helper()
	finding := find(got, rule)
	if want.severity == 0 {
		if finding != nil {
			t.Errorf("it says %v", finding)
		}
		if want.unread && find(got, "cluster-unread") == nil {
			t.Error("nothing says that a part of the API could not be read")
		}
		return
	}
	if finding == nil {
		t.Fatalf("it says nothing; findings: %v", got.GetFindings())
	}
	if finding.GetSeverity() != want.severity || finding.GetUndecided() != want.undecided {
		t.Errorf("it says %v, undecided %v; want %v, %v", finding.GetSeverity(), finding.GetUndecided(), want.severity, want.undecided)
	}
	if finding.GetScope() != offrampv1.Scope_SCOPE_CLUSTER || len(finding.GetEvidence()) == 0 || finding.GetRemedy() == "" {
		t.Errorf("finding of another scope, without evidence or remedy: %v", finding)
	}
}

func TestEveryClusterRuleIsTestedInEveryWay(t *testing.T) {
	type ways struct{ fires, quiet, cannotTell bool }
	seen := map[string]ways{}
	for _, c := range clusterCases() {
		way := seen[c.rule]
		cannot := c.want.undecided || c.want.unread
		way.cannotTell = way.cannotTell || cannot
		way.fires = way.fires || c.want.severity != 0
		way.quiet = way.quiet || (c.want.severity == 0 && !cannot)
		seen[c.rule] = way
	}
	for _, rule := range readiness.Rules() {
		way := seen[rule.ID]
		inEveryWay := way.fires && way.quiet && way.cannotTell
		if rule.OfCluster() && !inEveryWay {
			t.Errorf("%s is not tested in every way for the cluster: %+v", rule.ID, way)
		}
	}
}

func TestAClusterInOrderSaysNothing(t *testing.T) {
	for _, target := range []offrampv1.Target{toNFTables, 0} {
		if got := readiness.AssessCluster(cleanCluster(), target); len(got) > 0 {
			t.Errorf("%v: %v", target, got)
		}
	}
}

func TestWithoutTheAPINothingIsSaidOfTheCluster(t *testing.T) {
	got := readiness.AssessCluster(nil, toNFTables)
	if len(got) != 1 || got[0].GetId() != "cluster-unread" || !got[0].GetUndecided() {
		t.Errorf("got %v", got)
	}
}
