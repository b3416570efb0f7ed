package collect

import (
	"slices"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const kindIPVSLink = offrampv1.SectionKind_SECTION_KIND_IPVS_LINK

// ipvsLinkSection reports kube-ipvs0.
func ipvsLinkSection(n *network) *offrampv1.Section {
	link, found := n.ipvsLink()
	if !found {
		return absent(kindIPVSLink)
	}
	content := &offrampv1.IpvsLinkFacts{
		LinkType: printable([]byte(link.kind)),
		Up:       link.up,
		Owner:    string(kubeproxy.LinkOwner(kubeproxy.Link{Name: link.name, Type: link.kind})),
	}
	for _, address := range n.addresses {
		switch {
		case !n.links[address.link].isIPVSLink():
		case address.prefix.Addr().Is4():
			content.Ipv4Addresses++
		default:
			content.Ipv6Addresses++
		}
	}
	items := n.ipvsLinkAddresses()
	content.Samples = items[:min(len(items), maxSamples)]
	content.List = facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, items)
	// The link itself is something: without addresses it is still present.
	return read(kindIPVSLink, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_IpvsLink{IpvsLink: content},
	})
}

func (n *network) ipvsLink() (linkHeader, bool) {
	for _, link := range n.links {
		if link.isIPVSLink() {
			return link, true
		}
	}
	return linkHeader{}, false
}

// ipvsLinkAddresses is LIST_NAME_IPVS_LINK_ADDRESSES, sorted. An address that is bound twice, with two prefix lengths,
// is in it once.
func (n *network) ipvsLinkAddresses() []string {
	var items []string
	for _, address := range n.addresses {
		if n.links[address.link].isIPVSLink() {
			items = append(items, address.prefix.Addr().String())
		}
	}
	slices.Sort(items)
	return slices.Compact(items)
}
