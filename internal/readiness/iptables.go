package readiness

import (
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// backend is the iptables tables of one family in one of the two backends.
type backend struct {
	kind   offrampv1.SectionKind
	other  offrampv1.SectionKind // the same family in the other backend
	family offrampv1.AddressFamily
	name   string
}

func backends() []backend {
	const (
		nft4    = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4
		nft6    = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6
		legacy4 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
		legacy6 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
		ipv4    = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
		ipv6    = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
	)
	return []backend{
		{nft4, legacy4, ipv4, "iptables-nft, IPv4"},
		{nft6, legacy6, ipv6, "iptables-nft, IPv6"},
		{legacy4, nft4, ipv4, "iptables-legacy, IPv4"},
		{legacy6, nft6, ipv6, "iptables-legacy, IPv6"},
	}
}

// iptablesKinds is the kinds of the four sections.
func iptablesKinds() []offrampv1.SectionKind {
	kinds := make([]offrampv1.SectionKind, 0, len(backends()))
	for _, part := range backends() {
		kinds = append(kinds, part.kind)
	}
	return kinds
}

func (n *node) iptables(kind offrampv1.SectionKind) *offrampv1.IptablesFacts {
	return n.stable[kind].GetIptables()
}

// sharedMode is which mode filled the shared chains of a backend and family: NONE where there are none.
func (n *node) sharedMode(kind offrampv1.SectionKind) offrampv1.ProxyMode {
	mode := n.iptables(kind).GetSharedChainsMode()
	if n.iptables(kind) == nil || mode == offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED {
		return offrampv1.ProxyMode_PROXY_MODE_NONE
	}
	return known(mode)
}

// superseded reports whether the shared chains of a backend belong to the past: another mode than the running one filled
// them, while those of the other backend are the running mode's. Both backends are seldom in use at once, but a node
// whose distribution switched without a reboot is so.
func (n *node) superseded(part backend) bool {
	mine := n.sharedMode(part.kind)
	isMode := mine == offrampv1.ProxyMode_PROXY_MODE_IPVS || mine == offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	return isMode && mine != n.running() && n.sharedMode(part.other) == n.running()
}

// chainLeftover is kubeproxy.Leftover, save that superseded shared chains are leftovers.
func (n *node) chainLeftover(part backend, owner string) kubeproxy.Answer {
	if kubeproxy.Owner(owner) == kubeproxy.OwnerShared && n.superseded(part) {
		return kubeproxy.Yes
	}
	return n.leftover(owner)
}
