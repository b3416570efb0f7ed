package readiness

import (
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// cluster is what the Kubernetes API said, with what could not be read set apart.
type cluster struct {
	facts   *offrampv1.ClusterFacts
	sources map[string]*offrampv1.ClusterSource
}

func newCluster(facts *offrampv1.ClusterFacts) *cluster {
	c := &cluster{facts: facts, sources: map[string]*offrampv1.ClusterSource{}}
	for _, source := range facts.GetSources() {
		c.sources[source.GetKind()] = source
	}
	return c
}

// read reports whether a kind of object was read, or is known not to exist.
func (c *cluster) read(kinds ...string) bool {
	return !slices.ContainsFunc(kinds, func(kind string) bool {
		switch c.sources[kind].GetState() {
		case offrampv1.SectionState_SECTION_STATE_PRESENT, offrampv1.SectionState_SECTION_STATE_EMPTY, offrampv1.SectionState_SECTION_STATE_ABSENT:
			return false
		default:
			return true
		}
	})
}

// configurations is what the objects of the cluster ask kube-proxy to do. A workload whose flags name a mode counts where no
// ConfigMap is given: with --config, kube-proxy ignores every other flag.
func (c *cluster) configurations() []configuration {
	var all []configuration
	for _, config := range c.facts.GetKubeProxyConfigs() {
		if config.GetError() != "" {
			continue
		}
		all = append(all, configuration{
			source: "ConfigMap " + config.GetNamespace() + "/" + config.GetName(), mode: known(config.GetMode()),
			origin: config.GetModeOrigin(), settings: config.GetSettings(),
		})
	}
	for _, workload := range c.facts.GetKubeProxies() {
		if workload.GetConfigMap() != "" {
			continue
		}
		one := configuration{source: workloadName(workload), mode: known(workload.GetMode()), origin: offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT}
		if workload.GetMode() == offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED {
			one.origin = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
		}
		all = append(all, one)
	}
	return all
}

func workloadName(workload *offrampv1.KubeProxyWorkload) string {
	return workload.GetKind() + " " + workload.GetNamespace() + "/" + workload.GetName()
}

// AssessCluster says what the cluster's objects mean for a target: findings of scope cluster, the worst first. Without access
// to the Kubernetes API (nil) it says only that.
func AssessCluster(facts *offrampv1.ClusterFacts, target offrampv1.Target) []*offrampv1.Finding {
	if target == offrampv1.Target_TARGET_UNSPECIFIED {
		target = offrampv1.Target_TARGET_NFTABLES
	}
	c := newCluster(facts)
	var findings []*offrampv1.Finding
	for _, rule := range Rules() {
		if rule.checkCluster == nil {
			continue
		}
		if finding := rule.finding(rule.checkCluster(c, target)); finding != nil {
			finding.Scope = offrampv1.Scope_SCOPE_CLUSTER
			findings = append(findings, finding)
		}
	}
	slices.SortFunc(findings, byWeight)
	return findings
}
