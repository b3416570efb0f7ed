package collect

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"

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
	// headerBuffer holds a header, of which the kernel puts one into each datagram. The datagram that it makes is at least a
	// page and grows with the buffer, up to 32 KiB (net/netlink/af_netlink.c netlink_dump): thirty-four of those would be a
	// tenth of what a reading costs. This with the kernel's struct skb_shared_info is just a page.
	headerBuffer = 4096 - 320
)

// errNoIPSet says that the kernel has no ipsets.
var errNoIPSet = errors.New("the kernel has no ip_set")

// ipsetReader reads the headers of all ipsets, and remembers the reading before. Safe for use by several goroutines.
//
// Nothing that the kernel tells is a proof cheaper than an equal reading. It lists one set a datagram, from where it was in
// the array of sets, and holds the mutex that creates, destroys, renames and swaps them for the first one alone
// (ip_set_core.c ip_set_dump_do; af_netlink.c netlink_dump). It counts the entries of a hash by walking over all of it
// while entries come and go (ip_set_hash_gen.h mtype_ext_size), and keeps no generation that would tell.
// The walks are nearly all that a reading costs, so a node that stands still is to be read once and not twice.
type ipsetReader struct {
	mods *modules

	mu sync.Mutex
	// before is the latest reading, if it agreed with the one before it.
	before *[]ipsetHeader
}

// read reports the headers of all ipsets: the latest of two consecutive readings that are equal.
func (r *ipsetReader) read(ctx context.Context) *offrampv1.Section {
	headers, attempts, err := r.headers(ctx)
	var section *offrampv1.Section
	switch {
	case errors.Is(err, errNoIPSet), r.mods.deniesIPSet(err):
		section = absent(kindIPSets)
	case err != nil:
		section = failed(kindIPSets, err)
	default:
		section = ipsetsSection(headers)
	}
	section.Volatile.Attempts = attempts
	return section
}

func (r *ipsetReader) headers(ctx context.Context) ([]ipsetHeader, uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.before
	r.before = nil // unless this one succeeds, the next is no reading after an agreed one
	s, err := openIPSet(r.mods)
	if err != nil {
		return nil, 1, err
	}
	defer s.close()
	s.buffer = s.buffer[:headerBuffer]
	headers, attempts, err := agreedAfter(ctx, before, func(ctx context.Context) ([]ipsetHeader, error) {
		return dumpIPSetHeaders(ctx, s)
	}, equalHeaders)
	if err == nil {
		r.before = &headers
	}
	return headers, attempts, err
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
