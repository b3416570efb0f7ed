package cluster

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// build makes the facts of what the feeds hold now.
func (w *Watcher) build() *offrampv1.ClusterFacts {
	facts := &offrampv1.ClusterFacts{Sources: w.sources(), ServerVersion: w.serverVersion()}
	pods, workloads := w.items(kindPods), w.items(kindDaemonSets)
	configs := w.items(kindConfigMaps)
	facts.Nodes = w.nodes(w.items(kindNodes))
	facts.Services = services(w.items(kindServices))
	facts.KubeProxies = kubeProxies(workloads, pods)
	facts.KubeProxyConfigs = kubeProxyConfigs(configs)
	facts.Networks = networks(workloads, configs)
	facts.ServiceCidrs = serviceCIDRs(w.items(kindServiceCIDRs))
	facts.Events = events(w.items(kindEvents))
	return facts
}

func (w *Watcher) items(kind string) []metav1.Object {
	var all []metav1.Object
	for _, feed := range w.feeds {
		if feed.kind == kind {
			all = append(all, feed.items()...)
		}
	}
	return all
}

// sources tells of each kind once: the worst of its feeds counts.
func (w *Watcher) sources() []*offrampv1.ClusterSource {
	byKind := map[string]*offrampv1.ClusterSource{}
	for _, feed := range w.feeds {
		state := feed.state()
		if state == nil {
			continue
		}
		if before := byKind[feed.kind]; before == nil || before.GetState() != offrampv1.SectionState_SECTION_STATE_UNREADABLE {
			byKind[feed.kind] = state
		}
	}
	all := make([]*offrampv1.ClusterSource, 0, len(byKind))
	for _, source := range byKind {
		all = append(all, source)
	}
	slices.SortFunc(all, func(a, b *offrampv1.ClusterSource) int { return strings.Compare(a.GetKind(), b.GetKind()) })
	return all
}

// serverVersion is asked each time: the control plane is upgraded under a running aggregator. Empty when it does not answer.
func (w *Watcher) serverVersion() string {
	version, err := w.config.Client.Discovery().ServerVersion()
	if err != nil {
		return ""
	}
	return version.GitVersion
}

func serviceCIDRs(objects []metav1.Object) []string {
	var all []string
	for _, object := range objects {
		if cidr, ok := object.(*networkingv1.ServiceCIDR); ok {
			all = append(all, cidr.Spec.CIDRs...)
		}
	}
	return all
}
