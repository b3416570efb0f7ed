package render

import (
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// sectionName is what people call a section.
func sectionName(kind offrampv1.SectionKind) string {
	switch kind {
	case offrampv1.SectionKind_SECTION_KIND_IPVS_LINK:
		return "kube-ipvs0"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4:
		return "iptables-nft IPv4"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6:
		return "iptables-nft IPv6"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4:
		return "iptables-legacy IPv4"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6:
		return "iptables-legacy IPv6"
	}
	return Word(kind)
}

// isIptables tells the four sections that look alike.
func isIptables(kind offrampv1.SectionKind) bool {
	return kind >= offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4 && kind <= offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
}

// absence says what it means that a section is absent.
func absence(kind offrampv1.SectionKind) string {
	switch {
	case isIptables(kind):
		return "the kernel has nothing of this backend loaded"
	case kind == offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY:
		return "no kube-proxy is in sight"
	case kind == offrampv1.SectionKind_SECTION_KIND_IPVS:
		return "the kernel has no ip_vs loaded"
	case kind == offrampv1.SectionKind_SECTION_KIND_IPVS_LINK:
		return "there is no link of this name"
	case kind == offrampv1.SectionKind_SECTION_KIND_IPSETS:
		return "the kernel has no ip_set loaded"
	case kind == offrampv1.SectionKind_SECTION_KIND_NFTABLES:
		return "the kernel has no nf_tables loaded"
	case kind == offrampv1.SectionKind_SECTION_KIND_SYSCTLS:
		return "none of kube-proxy's parameters exists here"
	case kind == offrampv1.SectionKind_SECTION_KIND_HISTORY:
		return "nothing is remembered of this node"
	}
	return ""
}

// emptiness says what it means that a section is empty.
func emptiness(kind offrampv1.SectionKind) string {
	switch {
	case isIptables(kind):
		return "this backend is loaded and has no table"
	case kind == offrampv1.SectionKind_SECTION_KIND_IPVS:
		return "ip_vs is loaded and has no virtual server"
	case kind == offrampv1.SectionKind_SECTION_KIND_IPSETS:
		return "ip_set is loaded and has no set"
	case kind == offrampv1.SectionKind_SECTION_KIND_NFTABLES:
		return "nf_tables is loaded and has no native table"
	case kind == offrampv1.SectionKind_SECTION_KIND_ADDRESSES:
		return "the node has no address"
	}
	return ""
}

// section writes one section: its state in words on one line, then what is worth a line of its own.
func (p *page) section(section *offrampv1.Section) {
	stable := section.GetStable()
	name, state := sectionName(section.GetKind()), Word(stable.GetState())
	switch stable.GetState() {
	case offrampv1.SectionState_SECTION_STATE_PRESENT:
		p.present(name, section)
	case offrampv1.SectionState_SECTION_STATE_ABSENT:
		p.line(2, "%s: %s%s", name, state, parentheses(absence(section.GetKind())))
		p.evenSo(section)
	case offrampv1.SectionState_SECTION_STATE_EMPTY:
		p.line(2, "%s: %s%s", name, state, parentheses(emptiness(section.GetKind())))
	default:
		p.line(2, "%s: %s%s", name, state, parentheses(Clean(stable.GetError())))
	}
}

// evenSo tells what an absent kube-proxy still says: who asserted it, or that nobody could look.
func (p *page) evenSo(section *offrampv1.Section) {
	if facts := section.GetStable().GetKubeProxy(); facts != nil {
		p.kubeProxyDetails(facts, section.GetVolatile().GetKubeProxy())
	}
}

func (p *page) present(name string, section *offrampv1.Section) {
	switch content := section.GetStable().GetContent().(type) {
	case *offrampv1.SectionStable_Kernel:
		p.kernel(name, content.Kernel, section.GetVolatile().GetKernel())
	case *offrampv1.SectionStable_KubeProxy:
		p.kubeProxy(name, content.KubeProxy, section.GetVolatile().GetKubeProxy())
	case *offrampv1.SectionStable_Ipvs:
		p.ipvs(name, content.Ipvs, section.GetVolatile().GetIpvs())
	case *offrampv1.SectionStable_IpvsLink:
		p.ipvsLink(name, content.IpvsLink)
	case *offrampv1.SectionStable_Ipsets:
		p.ipsets(name, content.Ipsets)
	case *offrampv1.SectionStable_Iptables:
		p.iptables(name, content.Iptables)
	case *offrampv1.SectionStable_Nftables:
		p.nftables(name, content.Nftables)
	case *offrampv1.SectionStable_Sysctls:
		p.sysctls(name, content.Sysctls)
	case *offrampv1.SectionStable_Addresses:
		p.addresses(name, content.Addresses)
	case *offrampv1.SectionStable_History:
		p.history(name, content.History)
	case *offrampv1.SectionStable_Host:
		p.host(name, content.Host)
	default:
		p.line(2, "%s: present, of a kind that this version does not know", name)
	}
}

func parentheses(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// wantsRoot tells whether a section could not be read for want of rights.
func wantsRoot(section *offrampv1.Section) bool {
	failure := strings.ToLower(section.GetStable().GetError())
	return strings.Contains(failure, "permission denied") || strings.Contains(failure, "operation not permitted")
}
