package readiness

import (
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// checkModesDisagree compares the three modes. A kernel that does not show the running mode blocks: kube-proxy never
// synced, and something else carries the traffic.
func checkModesDisagree(n *node, _ offrampv1.Target) outcome {
	running := n.running()
	if running == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		return unread()
	}
	if evidence := n.contradictions(); len(evidence) > 0 {
		return block("Find out in kube-proxy's log why its rules could not be written, mend that and restart it. Clean up nothing "+
			"before: what the old mode left carries the traffic.", append(evidence, n.runningEvidence())...)
	}
	if evidence := n.openObservations(); len(evidence) > 0 {
		return undecided("Look at kube-proxy's log; restart it when its rules are not written.", evidence...)
	}
	configured := known(n.kubeProxy().GetConfiguredMode())
	restart := running != offrampv1.ProxyMode_PROXY_MODE_NONE && configured != running
	if restart && configured != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		return warn("Restart kube-proxy on this node, so that what is configured is what runs.", n.runningEvidence(),
			"configured: "+modeName(configured)+" ("+n.kubeProxy().GetConfiguredModeSource()+")")
	}
	if !n.read(kernelKinds()...) {
		return unread()
	}
	return quietly()
}

// contradictions lists what the kernel shows against the running mode.
func (n *node) contradictions() []string {
	switch n.running() {
	case offrampv1.ProxyMode_PROXY_MODE_IPTABLES:
		return n.sharedContradictions(offrampv1.ProxyMode_PROXY_MODE_IPVS)
	case offrampv1.ProxyMode_PROXY_MODE_IPVS:
		evidence := n.sharedContradictions(offrampv1.ProxyMode_PROXY_MODE_IPTABLES)
		if n.read(offrampv1.SectionKind_SECTION_KIND_IPVS) && n.ipvs().GetVirtualServers() == 0 {
			evidence = append(evidence, "the IPVS table is empty")
		}
		return evidence
	case offrampv1.ProxyMode_PROXY_MODE_NFTABLES:
		if n.read(offrampv1.SectionKind_SECTION_KIND_NFTABLES) && !n.holds(kubeproxy.OwnerNFTables) {
			return []string{"there is no nftables table of kube-proxy's"}
		}
	}
	return nil
}

// sharedContradictions lists the families whose shared chains another mode filled, or which have none.
func (n *node) sharedContradictions(other offrampv1.ProxyMode) []string {
	var evidence []string
	for _, part := range backends() {
		if n.sharedMode(part.kind) == other && !n.superseded(part) {
			evidence = append(evidence, "nat KUBE-SERVICES was filled by "+modeName(other)+" mode ("+part.name+")")
		}
	}
	if n.read(iptablesKinds()...) && !slices.ContainsFunc(backends(), n.hasSharedChains) {
		evidence = append(evidence, "there is no chain KUBE-SERVICES in any nat table")
	}
	return evidence
}

func (n *node) hasSharedChains(part backend) bool {
	return n.sharedMode(part.kind) != offrampv1.ProxyMode_PROXY_MODE_NONE
}

// openObservations lists why it cannot be told that the running mode wrote its rules: the shared chains are there, but
// none shows a mode; or they are there in both backends of a family, and none of the two is clearly of the past.
func (n *node) openObservations() []string {
	if !n.usesSharedChains() {
		return nil
	}
	var evidence []string
	shown := false
	for _, part := range backends() {
		shown = shown || n.sharedMode(part.kind) == n.running()
		if n.inBothBackends(part) {
			evidence = append(evidence, "kube-proxy's chains are in both backends ("+part.name+")")
		}
	}
	if !shown && n.read(iptablesKinds()...) {
		evidence = append(evidence, "nat KUBE-SERVICES shows no mode")
	}
	return evidence
}

func (n *node) usesSharedChains() bool {
	running := n.running()
	return running == offrampv1.ProxyMode_PROXY_MODE_IPTABLES || running == offrampv1.ProxyMode_PROXY_MODE_IPVS
}

// inBothBackends reports whether part and its other backend have shared chains and neither is superseded.
func (n *node) inBothBackends(part backend) bool {
	twin := part
	twin.kind, twin.other = part.other, part.kind
	return n.hasSharedChains(part) && n.hasSharedChains(twin) && !n.superseded(part) && !n.superseded(twin)
}

// holds reports whether something of an owner is in the kernel.
func (n *node) holds(owner kubeproxy.Owner) bool {
	return slices.ContainsFunc(n.held, func(h holding) bool { return h.owner == owner })
}
