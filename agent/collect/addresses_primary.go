package collect

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// dumpDefaultRoutes returns the default route with the lowest metric of each family that has one.
func dumpDefaultRoutes(ctx context.Context, s *socket) ([]route, error) {
	var routes []route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var best *route
		err := dumpRoutes(ctx, s, family, unix.RT_TABLE_MAIN, 0, func(one route) {
			isDefault := one.kind == unix.RTN_UNICAST && one.destination.Bits() <= 0
			if isDefault && (best == nil || one.metric < best.metric) {
				best = &one
			}
		})
		if err != nil {
			return nil, err
		}
		if best != nil {
			routes = append(routes, *best)
		}
	}
	return routes, nil
}

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
	for _, address := range n.addresses {
		if address.link != link || address.family() != family || !address.lasting {
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
	if a.ip().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
