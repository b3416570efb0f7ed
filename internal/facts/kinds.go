package facts

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// Kinds lists every section kind that this version knows, in the order of the enum.
func Kinds() []offrampv1.SectionKind {
	values := offrampv1.SectionKind(0).Descriptor().Values()
	kinds := make([]offrampv1.SectionKind, 0, values.Len()-1)
	for i := range values.Len() {
		if kind := offrampv1.SectionKind(values.Get(i).Number()); kind != offrampv1.SectionKind_SECTION_KIND_UNSPECIFIED {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Known reports whether this version knows the kind. A kind that it does not know comes from a newer agent; receivers skip
// such a section, since neither its bounds nor its meaning can be judged here. Kind 0 is a mistake, not news.
func Known(kind offrampv1.SectionKind) bool {
	_, named := offrampv1.SectionKind_name[int32(kind)]
	return named && kind != offrampv1.SectionKind_SECTION_KIND_UNSPECIFIED
}

// contentFits reports whether a section of that kind may hold that content. Content may be missing: nothing is known of a
// section that could not be read.
func contentFits(kind offrampv1.SectionKind, stable *offrampv1.SectionStable) bool {
	switch stable.GetContent().(type) {
	case nil:
		return stable.GetState() != offrampv1.SectionState_SECTION_STATE_PRESENT
	case *offrampv1.SectionStable_Kernel:
		return kind == offrampv1.SectionKind_SECTION_KIND_KERNEL
	case *offrampv1.SectionStable_KubeProxy:
		return kind == offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY
	case *offrampv1.SectionStable_Ipvs:
		return kind == offrampv1.SectionKind_SECTION_KIND_IPVS
	case *offrampv1.SectionStable_IpvsLink:
		return kind == offrampv1.SectionKind_SECTION_KIND_IPVS_LINK
	case *offrampv1.SectionStable_Ipsets:
		return kind == offrampv1.SectionKind_SECTION_KIND_IPSETS
	case *offrampv1.SectionStable_Iptables:
		return isIptables(kind)
	case *offrampv1.SectionStable_Nftables:
		return kind == offrampv1.SectionKind_SECTION_KIND_NFTABLES
	case *offrampv1.SectionStable_Sysctls:
		return kind == offrampv1.SectionKind_SECTION_KIND_SYSCTLS
	case *offrampv1.SectionStable_Addresses:
		return kind == offrampv1.SectionKind_SECTION_KIND_ADDRESSES
	case *offrampv1.SectionStable_History:
		return kind == offrampv1.SectionKind_SECTION_KIND_HISTORY
	case *offrampv1.SectionStable_Host:
		return kind == offrampv1.SectionKind_SECTION_KIND_HOST
	default:
		return false
	}
}

func isIptables(kind offrampv1.SectionKind) bool {
	switch kind {
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6:
		return true
	default:
		return false
	}
}

func volatileFits(kind offrampv1.SectionKind, volatile *offrampv1.SectionVolatile) bool {
	switch volatile.GetContent().(type) {
	case nil:
		return true
	case *offrampv1.SectionVolatile_Kernel:
		return kind == offrampv1.SectionKind_SECTION_KIND_KERNEL
	case *offrampv1.SectionVolatile_KubeProxy:
		return kind == offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY
	case *offrampv1.SectionVolatile_Ipvs:
		return kind == offrampv1.SectionKind_SECTION_KIND_IPVS
	case *offrampv1.SectionVolatile_IpvsLink:
		return kind == offrampv1.SectionKind_SECTION_KIND_IPVS_LINK
	case *offrampv1.SectionVolatile_Nftables:
		return kind == offrampv1.SectionKind_SECTION_KIND_NFTABLES
	case *offrampv1.SectionVolatile_Host:
		return kind == offrampv1.SectionKind_SECTION_KIND_HOST
	default:
		return false
	}
}
