package collect

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dummyAddress stands for any address that only a default route leads to: 192.0.0.8 is nobody's (RFC 7600, section 4.8).
func dummyAddress() [4]byte { return [4]byte{192, 0, 0, 8} }

// readDefaultRoutes returns the default route of each family that has one: that which the kernel takes, or the one with the
// lowest metric.
func readDefaultRoutes(ctx context.Context, s *socket) ([]route, error) {
	var routes []route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		best, found, err := route{}, false, error(nil)
		if family == unix.AF_INET {
			best, found, err = lookUpDefaultRoute(ctx, s)
		}
		if err == nil && !found {
			best, found, err = dumpDefaultRoute(ctx, s, family)
		}
		if err != nil {
			return nil, err
		}
		if found {
			routes = append(routes, best)
		}
	}
	return routes, nil
}

// lookUpDefaultRoute asks which route leads to an address that is nobody's, and believes the answer if that is the default
// route of the main table. A dump of this table walks over the local routes of every address of the node, since both are
// one tree until somebody adds a rule (net/ipv4/fib_frontend.c fib_new_table, fib_trie.c fib_table_dump).
func lookUpDefaultRoute(ctx context.Context, s *socket) (best route, found bool, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	// The entry of the table and not what becomes of it for a packet; kernels below 4.13 tell that, and have no default route.
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
		Family: unix.AF_INET, Dst_len: 32, Flags: unix.RTM_F_FIB_MATCH | unix.RTM_F_LOOKUP_TABLE,
	}})
	to := dummyAddress()
	request.AddData(nl.NewRtAttr(unix.RTA_DST, to[:]))
	err = s.dump(ctx, request, func(message []byte) error {
		best, err = parseRoute(message)
		found = err == nil && best.isDefault() && best.family == unix.AF_INET && best.table == unix.RT_TABLE_MAIN
		return err
	})
	var refused unix.Errno
	if errors.As(err, &refused) {
		return route{}, false, nil // no route leads there, or one that refuses: the tables tell which there are
	}
	return best, found, err
}

// dumpDefaultRoute returns the default route of the main table with the lowest metric.
func dumpDefaultRoute(ctx context.Context, s *socket, family uint8) (best route, found bool, err error) {
	err = dumpRoutes(ctx, s, family, unix.RT_TABLE_MAIN, 0, func(one route) {
		if one.isDefault() && (!found || one.metric < best.metric) {
			best, found = one, true
		}
	})
	return best, found, err
}

func (r *route) isDefault() bool { return r.kind == unix.RTN_UNICAST && r.destination.Bits() <= 0 }

// primary returns the node's own address of a family: the source that the default route prefers, or the one that the kernel
// would choose for it, or the first global address of the first link. It is invalid when there is none.
func (n *network) primary(family uint8) netip.Addr {
	for _, one := range n.defaults {
		if one.family != family {
			continue
		}
		if one.preferred.IsValid() {
			return one.preferred
		}
		if address := n.sourceOn(one.link, family, one.gateway); address.IsValid() {
			return address
		}
	}
	for _, index := range slices.Sorted(maps.Keys(n.links)) {
		if link := n.links[index]; link.loopback || link.isIPVSLink() {
			continue
		}
		if address := n.sourceOn(index, family, netip.Addr{}); address.IsValid() {
			return address
		}
	}
	return netip.Addr{}
}

// sourceOn chooses among the addresses of a link as inet_select_addr does (net/ipv4/devinet.c): the first one in the
// gateway's network, else the first.
func (n *network) sourceOn(link int, family uint8, gateway netip.Addr) netip.Addr {
	var first netip.Addr
	for i := range n.addresses { // in place: they may be thousands of other links
		address := &n.addresses[i]
		if address.link() != link || address.family() != family || !address.lasting {
			continue
		}
		if gateway.IsValid() && address.prefix().Contains(gateway) {
			return address.ip()
		}
		if !first.IsValid() {
			first = address.ip()
		}
	}
	return first
}

func (a linkAddress) family() uint8 {
	if a.size == net.IPv4len {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
