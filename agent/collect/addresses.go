package collect

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kindAddresses = offrampv1.SectionKind_SECTION_KIND_ADDRESSES
	// maxAddressSamples is how many of the node's own addresses a report carries.
	maxAddressSamples = 64
)

// isIPVSLink goes by the name alone: what is bound there is no address of the node's, whoever made the link.
func (l linkHeader) isIPVSLink() bool { return l.name == kubeproxy.IPVSLink }

// addressesSection reports the node's own addresses.
func addressesSection(n *network) *offrampv1.Section {
	var own []*offrampv1.NodeAddress
	primary := []netip.Addr{n.primary(unix.AF_INET), n.primary(unix.AF_INET6)}
	var link linkHeader
	last, others := 0, false // addresses come link by link, and no link is 0
	for _, address := range n.addresses {
		if address.link() != last {
			last, link = address.link(), n.links[address.link()]
			others = link.loopback || link.isIPVSLink()
		}
		if others {
			continue
		}
		own = append(own, &offrampv1.NodeAddress{
			Interface:    printable([]byte(link.name)),
			Address:      address.ip().String(),
			PrefixLength: uint32(address.prefix().Bits()), //nolint:gosec // a prefix has 0 to 128 bits
			Primary:      slices.Contains(primary, address.ip()),
		})
	}
	slices.SortFunc(own, compareAddresses)
	content := &offrampv1.AddressesFacts{Count: uint64(len(own)), Samples: own[:min(len(own), maxAddressSamples)]}
	return read(kindAddresses, len(own) == 0, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Addresses{Addresses: content},
	})
}

func compareAddresses(a, b *offrampv1.NodeAddress) int {
	return cmp.Or(
		cmp.Compare(a.GetInterface(), b.GetInterface()),
		cmp.Compare(a.GetAddress(), b.GetAddress()),
		cmp.Compare(a.GetPrefixLength(), b.GetPrefixLength()),
	)
}

// localAddresses is a kubeproxy.LocalAddresses.
type localAddresses struct{ ipvs, node map[netip.Addr]struct{} }

// OnIPVSLink reports whether the address is on kube-ipvs0.
func (l *localAddresses) OnIPVSLink(address netip.Addr) bool {
	_, found := l.ipvs[address]
	return found
}

// OnNode reports whether the address is on another link, loopback included.
func (l *localAddresses) OnNode(address netip.Addr) bool {
	_, found := l.node[address]
	return found
}

func (n *network) local() *localAddresses {
	local := &localAddresses{ipvs: map[netip.Addr]struct{}{}, node: map[netip.Addr]struct{}{}}
	for _, address := range n.addresses {
		on := local.node
		if n.links[address.link()].isIPVSLink() {
			on = local.ipvs
		}
		on[address.ip()] = struct{}{}
	}
	return local
}
