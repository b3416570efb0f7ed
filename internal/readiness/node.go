package readiness

import (
	"fmt"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// node is a node's facts with the sections that could be read set apart from those that could not.
type node struct {
	stable   map[offrampv1.SectionKind]*offrampv1.SectionStable
	volatile map[offrampv1.SectionKind]*offrampv1.SectionVolatile
	// problems says why a section could not be read; sections that are missing are among them.
	problems map[offrampv1.SectionKind]string
	// held and left are what several rules ask about.
	held []holding
	left *offrampv1.Leftovers
	// around is what the cluster says about the node.
	around Surroundings
}

// sectionKinds is every part of a node, in the order of facts.proto.
func sectionKinds() []offrampv1.SectionKind {
	return []offrampv1.SectionKind{
		offrampv1.SectionKind_SECTION_KIND_KERNEL,
		offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY,
		offrampv1.SectionKind_SECTION_KIND_IPVS,
		offrampv1.SectionKind_SECTION_KIND_IPVS_LINK,
		offrampv1.SectionKind_SECTION_KIND_IPSETS,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6,
		offrampv1.SectionKind_SECTION_KIND_NFTABLES,
		offrampv1.SectionKind_SECTION_KIND_SYSCTLS,
		offrampv1.SectionKind_SECTION_KIND_ADDRESSES,
		offrampv1.SectionKind_SECTION_KIND_HISTORY,
		offrampv1.SectionKind_SECTION_KIND_HOST,
	}
}

func newNode(facts *offrampv1.NodeFacts) *node {
	n := &node{
		stable:   map[offrampv1.SectionKind]*offrampv1.SectionStable{},
		volatile: map[offrampv1.SectionKind]*offrampv1.SectionVolatile{},
		problems: map[offrampv1.SectionKind]string{},
	}
	for _, section := range facts.GetSections() {
		n.add(section)
	}
	for _, kind := range sectionKinds() {
		if n.stable[kind] == nil && n.problems[kind] == "" {
			n.problems[kind] = "not reported"
		}
	}
	n.held, n.left = n.holdings(), n.leftovers()
	return n
}

// add takes a section in. Of two sections of a kind neither is believed.
func (n *node) add(section *offrampv1.Section) {
	kind := section.GetKind()
	if n.stable[kind] != nil || n.problems[kind] != "" {
		delete(n.stable, kind)
		delete(n.volatile, kind)
		n.problems[kind] = "reported twice"
		return
	}
	if problem := sectionProblem(section); problem != "" {
		n.problems[kind] = problem
		return
	}
	n.stable[kind] = section.GetStable()
	n.volatile[kind] = section.GetVolatile()
}

// sectionProblem says why nothing may be concluded from a section, "" when it may.
func sectionProblem(section *offrampv1.Section) string {
	stable := section.GetStable()
	switch stable.GetState() {
	case offrampv1.SectionState_SECTION_STATE_ABSENT, offrampv1.SectionState_SECTION_STATE_EMPTY:
		return ""
	case offrampv1.SectionState_SECTION_STATE_PRESENT:
		if !hasContent(section.GetKind(), stable) {
			return "said to be there, but nothing of it was reported"
		}
		return ""
	case offrampv1.SectionState_SECTION_STATE_UNREADABLE:
		return orElse(stable.GetError(), "could not be read")
	case offrampv1.SectionState_SECTION_STATE_INCONSISTENT:
		return orElse(stable.GetError(), "kept changing while it was read")
	default:
		return fmt.Sprintf("in a state that this version does not know (%d)", stable.GetState())
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// hasContent reports whether a section carries the facts of its own kind.
func hasContent(kind offrampv1.SectionKind, stable *offrampv1.SectionStable) bool {
	switch kind {
	case offrampv1.SectionKind_SECTION_KIND_KERNEL:
		return stable.GetKernel() != nil
	case offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY:
		return stable.GetKubeProxy() != nil
	case offrampv1.SectionKind_SECTION_KIND_IPVS:
		return stable.GetIpvs() != nil
	case offrampv1.SectionKind_SECTION_KIND_IPVS_LINK:
		return stable.GetIpvsLink() != nil
	case offrampv1.SectionKind_SECTION_KIND_IPSETS:
		return stable.GetIpsets() != nil
	case offrampv1.SectionKind_SECTION_KIND_NFTABLES:
		return stable.GetNftables() != nil
	case offrampv1.SectionKind_SECTION_KIND_SYSCTLS:
		return stable.GetSysctls() != nil
	case offrampv1.SectionKind_SECTION_KIND_ADDRESSES:
		return stable.GetAddresses() != nil
	case offrampv1.SectionKind_SECTION_KIND_HISTORY:
		return stable.GetHistory() != nil
	case offrampv1.SectionKind_SECTION_KIND_HOST:
		return stable.GetHost() != nil
	default:
		return stable.GetIptables() != nil
	}
}

// read reports whether all of these sections could be read.
func (n *node) read(kinds ...offrampv1.SectionKind) bool {
	for _, kind := range kinds {
		if n.problems[kind] != "" {
			return false
		}
	}
	return true
}

// running is the mode that runs, unknown for everything that this version does not know.
func (n *node) running() offrampv1.ProxyMode { return known(n.kubeProxy().GetRunningMode()) }

func known(mode offrampv1.ProxyMode) offrampv1.ProxyMode {
	switch mode {
	case offrampv1.ProxyMode_PROXY_MODE_IPTABLES, offrampv1.ProxyMode_PROXY_MODE_IPVS,
		offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ProxyMode_PROXY_MODE_NONE:
		return mode
	default:
		return offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	}
}

// kubeProxySeen reports whether a kube-proxy is in sight: a process, or something that answered in its name.
func (n *node) kubeProxySeen() bool {
	if len(n.kubeProxy().GetProcesses()) > 0 {
		return true
	}
	for _, endpoint := range n.kubeProxy().GetEndpoints() {
		if endpoint.GetStatus() != 0 {
			return true
		}
	}
	return false
}

// leftover asks internal/kubeproxy about an owner under the running mode.
func (n *node) leftover(owner string) kubeproxy.Answer {
	return kubeproxy.Leftover(kubeproxy.Owner(owner), n.running())
}
