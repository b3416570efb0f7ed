package readiness

import (
	"fmt"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// holding is how many things of one kind one owner has.
type holding struct {
	what  string
	owner kubeproxy.Owner
	count uint64
}

func (h holding) String() string { return fmt.Sprintf("%s of %s: %d", h.what, h.owner, h.count) }

// holdings lists who has what in the kernel, as far as it could be read; virtual servers first.
func (n *node) holdings() []holding {
	var all []holding
	add := func(what, owner string, count uint64) {
		if count > 0 {
			all = append(all, holding{what, kubeproxy.Owner(owner), count})
		}
	}
	for _, owner := range n.ipvs().GetOwners() {
		add(virtualServers, owner.GetOwner(), owner.GetCount())
	}
	if link := n.link(); link != nil {
		add("link "+kubeproxy.IPVSLink, link.GetOwner(), 1)
	}
	for _, owner := range n.ipsets().GetOwners() {
		add("ipsets", owner.GetOwner(), owner.GetCount())
	}
	for _, part := range backends() {
		for _, owner := range n.iptables(part.kind).GetOwners() {
			add("chains ("+part.name+", "+owner.GetTable()+")", owner.GetOwner(), owner.GetChains())
			add("jumps ("+part.name+", "+owner.GetTable()+")", owner.GetOwner(), owner.GetJumps())
		}
	}
	for _, owner := range n.nftables().GetOwners() {
		add("nftables tables", owner.GetOwner(), owner.GetCount())
	}
	return all
}

const virtualServers = "virtual servers"

// kubeProxys lists what is kube-proxy's.
func (n *node) kubeProxys() []holding {
	return keep(n.held, func(h holding) bool { return h.owner.IsKubeProxy() })
}

// unattributed lists what may be kube-proxy's: its owner is unknown, or one that this version does not know.
func (n *node) unattributed() []holding {
	return keep(n.held, func(h holding) bool {
		return !h.owner.IsKubeProxy() && kubeproxy.Leftover(h.owner, offrampv1.ProxyMode_PROXY_MODE_NONE) == kubeproxy.Unknown
	})
}

func keep(all []holding, want func(holding) bool) []holding {
	var kept []holding
	for _, one := range all {
		if want(one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// kernelKinds is the sections in which something of kube-proxy's can be.
func kernelKinds() []offrampv1.SectionKind {
	return append(iptablesKinds(),
		offrampv1.SectionKind_SECTION_KIND_IPVS,
		offrampv1.SectionKind_SECTION_KIND_IPVS_LINK,
		offrampv1.SectionKind_SECTION_KIND_IPSETS,
		offrampv1.SectionKind_SECTION_KIND_NFTABLES)
}

func evidenceOf(things []holding) []string {
	lines := make([]string, 0, len(things))
	for _, thing := range things {
		lines = append(lines, thing.String())
	}
	return lines
}
