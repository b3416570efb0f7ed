package collect

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"strconv"
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
			if address.link() != last {
				last, isOn = address.link(), n.links[address.link()].isIPVSLink()
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
	ranks := byteRanks()
	short := make([]uint64, 0, len(n.addresses))
	var long []string
	for address := range n.onIPVSLink() {
		if address.Is4() {
			short = append(short, ranks.of(address.As4()))
		} else {
			long = append(long, address.String())
		}
	}
	slices.Sort(short)
	items := addressTexts(slices.Compact(short))
	if len(long) > 0 {
		items = append(items, long...)
		slices.Sort(items)
	}
	return slices.Compact(items)
}

// ranks are the places of the numbers 0 to 255 among their texts: "10" is before "2". Since a dot is before any digit, IPv4
// addresses are in the order of their texts when they are in the order of the ranks of their bytes, and sorting numbers
// takes a third of the time.
type ranks [256]uint8

func byteRanks() *ranks {
	var texts [256]string
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	slices.Sort(texts[:])
	var all ranks
	for rank, text := range texts {
		number, _ := strconv.Atoi(text)
		all[number] = uint8(rank)
	}
	return &all
}

// of puts an address behind the ranks of its bytes, so that it need not be found from them.
func (r *ranks) of(address [4]byte) uint64 {
	var order [4]byte
	for i, number := range address {
		order[i] = r[number]
	}
	return uint64(binary.BigEndian.Uint32(order[:]))<<32 | uint64(binary.BigEndian.Uint32(address[:]))
}

// addressTexts writes IPv4 addresses, the lower halves of numbers, into one piece of memory.
func addressTexts(addresses []uint64) []string {
	if len(addresses) == 0 {
		return nil
	}
	const longest = len("255.255.255.255\n")
	var text strings.Builder
	text.Grow(longest * len(addresses))
	var raw [8]byte
	for _, address := range addresses {
		binary.BigEndian.PutUint64(raw[:], address)
		var line [longest]byte
		_, _ = text.Write(append(netip.AddrFrom4([4]byte(raw[4:])).AppendTo(line[:0]), '\n')) // never fails
	}
	return strings.Split(text.String()[:text.Len()-1], "\n")
}

func cloned(items []string) []string {
	own := make([]string, 0, len(items))
	for _, item := range items {
		own = append(own, strings.Clone(item))
	}
	return own
}
