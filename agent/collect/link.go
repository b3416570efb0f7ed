package collect

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

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
	for address := range n.onIPVSLink() {
		if address.Is4() {
			content.Ipv4Addresses++
		} else {
			content.Ipv6Addresses++
		}
	}
	items := n.ipvsLinkAddresses()
	content.Samples = cloned(items[:min(len(items), maxSamples)])
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

// onIPVSLink goes through the addresses of every link of that name: a name is one link's, but a reading may be torn.
func (n *network) onIPVSLink() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		last, isOn := 0, false // addresses come link by link, and no link is 0
		for _, address := range n.addresses {
			if address.link != last {
				last, isOn = address.link, n.links[address.link].isIPVSLink()
			}
			if isOn && !yield(address.ip()) {
				return
			}
		}
	}
}

// ipvsLinkAddresses is LIST_NAME_IPVS_LINK_ADDRESSES, sorted. An address that is bound twice, with two prefix lengths,
// is in it once. All items share one piece of memory: what is kept is to be cloned.
func (n *network) ipvsLinkAddresses() []string {
	text := make([]byte, 0, len("255.255.255.255\n")*len(n.addresses))
	for address := range n.onIPVSLink() {
		text = append(address.AppendTo(text), '\n')
	}
	if len(text) == 0 {
		return nil
	}
	items := strings.Split(string(text[:len(text)-1]), "\n")
	slices.Sort(items)
	return slices.Compact(items)
}

func cloned(items []string) []string {
	own := make([]string, 0, len(items))
	for _, item := range items {
		own = append(own, strings.Clone(item))
	}
	return own
}
