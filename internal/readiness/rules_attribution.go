package readiness

import (
	"fmt"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func attributionRules() []Rule {
	return []Rule{
		{
			ID:       "unattributed-virtual-servers",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "It cannot be told whose some virtual servers are",
			Severity: "open",
			Meaning:  "The IPVS table names no owner. A clean-up leaves alone what it cannot attribute.",
			Remedy:   "Find out who made them (ipvsadm -Ln); delete by hand what is nobody's.",
			Source:   "the IPVS table has no owner field: only kube-proxy's ipsets tell which virtual servers are its own",
			check:    checkUnattributedServers,
		},
		{
			ID:       "unattributed-objects",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "It cannot be told whose some sets, chains or jumps are",
			Severity: "open",
			Meaning:  "Names that look like kube-proxy's but are not of a version that is known. A clean-up leaves them alone.",
			Remedy:   "Find out who made them (iptables-save, ipset list -t); delete by hand what is nobody's.",
			Source:   "names that kube-proxy 1.28 to 1.37 does not use, or uses otherwise",
			check:    checkUnattributedObjects,
		},
	}
}

func checkUnattributedServers(n *node, _ offrampv1.Target) outcome {
	evidence := evidenceOf(keep(n.unattributed(), isServers))
	if len(evidence) == 0 {
		if !n.read(offrampv1.SectionKind_SECTION_KIND_IPVS) {
			return unread()
		}
		return quietly()
	}
	if reason := n.ipvs().GetAttributionError(); reason != "" {
		evidence = append(evidence, reason)
	}
	for _, server := range n.ipvs().GetSamples() {
		if server.GetOwner() == string(kubeproxy.OwnerUnknown) {
			evidence = append(evidence, fmt.Sprintf("%s: %s", serverEvidence(server), server.GetReason()))
		}
	}
	return undecided("Find out who made them (ipvsadm -Ln); delete by hand what is nobody's.", evidence...)
}

func checkUnattributedObjects(n *node, _ offrampv1.Target) outcome {
	evidence := evidenceOf(keep(n.unattributed(), func(h holding) bool { return !isServers(h) }))
	switch {
	case len(evidence) > 0:
		return undecided("Find out who made them (iptables-save, ipset list -t); delete by hand what is nobody's.", evidence...)
	case !n.read(kernelKinds()...):
		return unread()
	default:
		return quietly()
	}
}

func isServers(h holding) bool { return h.what == virtualServers }
