package collect

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kindIPSets = offrampv1.SectionKind_SECTION_KIND_IPSETS
	// maxSamples is how many samples of a kind and owner a report carries.
	maxSamples = 20
	// maxKubeProxySets is how many sets kube-proxy has: 17 in each family.
	maxKubeProxySets = 34
)

// errNoIPSet says that the kernel has no ipsets.
var errNoIPSet = errors.New("the kernel has no ip_set")

// readIPSets reports the headers of all ipsets.
func readIPSets(ctx context.Context, mods *modules) *offrampv1.Section {
	s, err := openIPSet(mods)
	if errors.Is(err, errNoIPSet) {
		return absent(kindIPSets)
	}
	if err != nil {
		return failed(kindIPSets, err)
	}
	defer s.close()
	headers, attempts, err := agreed(ctx, func(ctx context.Context) ([]ipsetHeader, error) {
		return dumpIPSetHeaders(ctx, s)
	}, equalHeaders)
	var section *offrampv1.Section
	switch {
	case mods.deniesIPSet(err):
		section = absent(kindIPSets)
	case err != nil:
		section = failed(kindIPSets, err)
	default:
		section = ipsetsSection(headers)
	}
	section.Volatile.Attempts = attempts
	return section
}

// openIPSet opens a socket for ipset requests, if asking loads nothing.
func openIPSet(mods *modules) (*socket, error) {
	loaded, err := mods.loaded(featureIPSet)
	if err != nil {
		return nil, err
	}
	if !loaded {
		return nil, errNoIPSet
	}
	s, err := openSocket(unix.NETLINK_NETFILTER)
	if mods.deniesIPSet(err) {
		return nil, errNoIPSet
	}
	return s, err
}

// deniesIPSet tells whether an error of the kernel means that it has no ipsets. The same numbers have other meanings
// where ip_set is in sight.
func (m *modules) deniesIPSet(err error) bool {
	if !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, unix.EINVAL) {
		return false
	}
	inSight, statErr := exists(filepath.Join(m.host.Sys, "module/ip_set"))
	return statErr == nil && !inSight
}

// equalHeaders leaves memory out: it moves when the kernel resizes a hash, which changes no set.
func equalHeaders(a, b []ipsetHeader) bool {
	return slices.EqualFunc(a, b, func(x, y ipsetHeader) bool {
		x.memory, y.memory = 0, 0
		return x == y
	})
}

// ipsetsSection sums up headers that are sorted by name.
func ipsetsSection(headers []ipsetHeader) *offrampv1.Section {
	content := &offrampv1.IpsetsFacts{Sets: uint64(len(headers))}
	owners := ownerCounter{}
	for _, header := range headers {
		content.Entries += uint64(header.entries)
		owner := kubeproxy.SetOwner(header.set())
		if owners.add(owner) <= samplesOf(owner) {
			content.Samples = append(content.Samples, header.sample(owner))
		}
	}
	content.Owners = owners.counts()
	return read(kindIPSets, len(headers) == 0, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Ipsets{Ipsets: content},
	})
}

func samplesOf(owner kubeproxy.Owner) uint64 {
	if owner.IsKubeProxy() {
		return maxKubeProxySets
	}
	return maxSamples
}

func (h ipsetHeader) sample(owner kubeproxy.Owner) *offrampv1.Ipset {
	return &offrampv1.Ipset{
		Name:        printable([]byte(h.name)),
		Type:        printable([]byte(h.kind)),
		Family:      addressFamily(h.family),
		Revision:    uint32(h.revision),
		References:  h.references,
		Entries:     uint64(h.entries),
		MemoryBytes: uint64(h.memory),
		Owner:       string(owner),
	}
}

func addressFamily(family kubeproxy.Family) offrampv1.AddressFamily {
	switch family {
	case kubeproxy.IPv4:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
	case kubeproxy.IPv6:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
	default:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED
	}
}
