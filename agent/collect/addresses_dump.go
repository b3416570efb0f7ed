package collect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkAddress is one address of one link. It holds no pointer, as a netip.Prefix would, and is small: ten thousand of those
// are work for the garbage collector.
type linkAddress struct {
	index int32 // of the link
	// lasting: of more than link scope, and neither secondary (in IPv6: temporary) nor deprecated.
	lasting bool
	// size is 4 or 16, how much of address counts; bits is the prefix length.
	size, bits uint8
	address    [16]byte
}

// on is an address of a link. False where bytes and bits are no prefix.
func on(link int, address []byte, bits uint8) (linkAddress, bool) {
	if len(address) != net.IPv4len && len(address) != net.IPv6len || int(bits) > 8*len(address) {
		return linkAddress{}, false
	}
	one := linkAddress{index: int32(link), size: uint8(len(address)), bits: bits} //nolint:gosec // the kernel's own type; 4 or 16
	copy(one.address[:], address)
	return one, true
}

// link is the index of its link.
func (a linkAddress) link() int { return int(a.index) }

// ip is the address alone.
func (a linkAddress) ip() netip.Addr {
	if a.size == net.IPv4len {
		return netip.AddrFrom4([4]byte(a.address[:4]))
	}
	return netip.AddrFrom16(a.address)
}

// prefix is the address with its prefix length.
func (a linkAddress) prefix() netip.Prefix { return netip.PrefixFrom(a.ip(), int(a.bits)) }

// linkHeader is what is read of a link.
type linkHeader struct {
	name     string
	kind     string // rtnetlink kind, such as "dummy"
	up       bool
	loopback bool
}

// network is the links and addresses of the network namespace at one moment.
type network struct {
	links     map[int]linkHeader
	addresses []linkAddress
	defaults  []route // default routes, one a family at most
}

// readNetwork reads links and addresses, with the number of readings it took.
func readNetwork(ctx context.Context) (*network, uint32, error) {
	s, err := openSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, 1, err
	}
	defer s.close()
	if err := s.askStrictly(); err != nil {
		return nil, 1, err
	}
	return repeat(ctx, func(ctx context.Context) (*network, error) { return dumpNetwork(ctx, s) })
}

// dumpNetwork reads addresses first: a link that goes away in between then leaves addresses without a link, which shows.
func dumpNetwork(ctx context.Context, s *socket) (*network, error) {
	addresses, err := dumpAddresses(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	links, err := dumpLinks(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the links: %w", err)
	}
	defaults, err := readDefaultRoutes(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("look for default routes: %w", err)
	}
	network, err := joinNetwork(links, addresses)
	if err == nil {
		network.defaults = defaults
	}
	return network, err
}

func joinNetwork(links map[int]linkHeader, addresses []linkAddress) (*network, error) {
	checked := 0 // they come link by link, and no link is 0
	for _, address := range addresses {
		if address.link() == checked {
			continue
		}
		if _, known := links[address.link()]; !known {
			return nil, errTorn
		}
		checked = address.link()
	}
	return &network{links: links, addresses: addresses}, nil
}

func dumpLinks(ctx context.Context) (map[int]linkHeader, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	if err := handle.SetSocketTimeout(timeLeft(ctx)); err != nil {
		return nil, err
	}
	list, err := handle.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, errTorn
	}
	if err != nil {
		return nil, err
	}
	links := make(map[int]linkHeader, len(list))
	for _, link := range list {
		attrs := link.Attrs()
		links[attrs.Index] = linkHeader{
			name:     attrs.Name,
			kind:     link.Type(),
			up:       attrs.Flags&net.FlagUp != 0,
			loopback: attrs.Flags&net.FlagLoopback != 0,
		}
	}
	return links, nil
}

// dumpAddresses reads the addresses of all links and both families in one dump. The library's AddrList would make eight
// objects of each of ten thousand addresses, once for every link asked for.
func dumpAddresses(ctx context.Context, s *socket) ([]linkAddress, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	var addresses []linkAddress
	err := s.dump(ctx, request, func(message []byte) error {
		address, ok, err := parseAddress(message)
		if ok {
			if len(addresses) == cap(addresses) { // in few steps: append's own would leave five times the memory behind
				addresses = slices.Grow(addresses, max(3*len(addresses), 64))
			}
			addresses = append(addresses, address)
		}
		return err
	})
	return addresses, err
}

// parseAddress takes an RTM_NEWADDR message: struct ifaddrmsg, then attributes. IFA_LOCAL is the address of this end where
// a link has two; without it, IFA_ADDRESS is. ok is false for a family other than IP.
func parseAddress(message []byte) (address linkAddress, ok bool, err error) {
	if len(message) < unix.SizeofIfAddrmsg {
		return address, false, errMalformed
	}
	header := nl.DeserializeIfAddrmsg(message)
	if header.Family != unix.AF_INET && header.Family != unix.AF_INET6 {
		return address, false, nil
	}
	var local, peer []byte
	parts := attributes{rest: message[unix.SizeofIfAddrmsg:]}
	for parts.next() {
		switch parts.kind {
		case unix.IFA_LOCAL:
			local = parts.value
		case unix.IFA_ADDRESS:
			peer = parts.value
		}
	}
	if local == nil {
		local = peer
	}
	address, valid := on(int(header.Index), local, header.Prefixlen)
	address.lasting = header.Scope < unix.RT_SCOPE_LINK && header.Flags&(unix.IFA_F_SECONDARY|unix.IFA_F_DEPRECATED) == 0
	if err = parts.err; err == nil && !valid {
		err = fmt.Errorf("an address that is none: %w", errMalformed)
	}
	return address, err == nil, err
}
