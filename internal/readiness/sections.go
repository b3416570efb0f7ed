package readiness

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// The facts of a section that could not be read are nil, and so is all that is asked of them.

func (n *node) kernel() *offrampv1.KernelFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_KERNEL].GetKernel()
}

func (n *node) kubeProxy() *offrampv1.KubeProxyFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY].GetKubeProxy()
}

func (n *node) kubeProxyNow() *offrampv1.KubeProxyVolatile {
	return n.volatile[offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY].GetKubeProxy()
}

func (n *node) ipvs() *offrampv1.IpvsFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_IPVS].GetIpvs()
}

func (n *node) link() *offrampv1.IpvsLinkFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_IPVS_LINK].GetIpvsLink()
}

func (n *node) ipsets() *offrampv1.IpsetsFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_IPSETS].GetIpsets()
}

func (n *node) nftables() *offrampv1.NftablesFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_NFTABLES].GetNftables()
}

func (n *node) sysctls() []*offrampv1.Sysctl {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_SYSCTLS].GetSysctls().GetValues()
}

func (n *node) history() *offrampv1.HistoryFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_HISTORY].GetHistory()
}
