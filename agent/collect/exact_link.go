package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// readLinks reads kube-ipvs0 with its addresses and local routes, the addresses of all other links, and the routes on lo
// that an earlier clean-up left.
func (e *exact) readLinks(ctx context.Context) error {
	network, _, err := e.scan.readNetwork(ctx)
	if err != nil {
		return err
	}
	routes, err := readExactRoutes(ctx, network)
	if err != nil {
		return err
	}
	e.addAddresses(network)
	for _, route := range routes {
		switch {
		case e.node.Link != nil && route.Link == e.node.Link.Name:
			e.node.Link.Routes = append(e.node.Link.Routes, route)
		case route.Protocol == inventory.RouteProtocol:
			e.node.OwnRoutes = append(e.node.OwnRoutes, route)
		}
	}
	return nil
}

func (e *exact) addAddresses(n *network) {
	for _, index := range slices.Sorted(maps.Keys(n.links)) {
		if link := n.links[index]; link.isIPVSLink() {
			e.node.Link = &inventory.Link{Name: link.name, Kind: link.kind, Index: index, Up: link.up}
		}
	}
	primary := []netip.Addr{n.primary(unix.AF_INET), n.primary(unix.AF_INET6)}
	for _, address := range n.addresses {
		link := n.links[address.link()]
		if link.isIPVSLink() {
			e.node.Link.Addresses = append(e.node.Link.Addresses, address.prefix())
			continue
		}
		e.node.Addresses = append(e.node.Addresses, inventory.Address{
			Link: link.name, Prefix: address.prefix(), Loopback: link.loopback, Up: link.up,
			Primary: slices.Contains(primary, address.ip()),
		})
	}
}

// readExactRoutes reads the local routes to single addresses, until none of the dumps is interrupted.
func readExactRoutes(ctx context.Context, n *network) ([]inventory.LocalRoute, error) {
	s, err := openSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer s.close()
	routes, _, err := repeat(ctx, func(ctx context.Context) ([]inventory.LocalRoute, error) {
		var routes []inventory.LocalRoute
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			dumped, err := dumpExactRoutes(ctx, s, family, n)
			if err != nil {
				return nil, err
			}
			routes = append(routes, dumped...)
		}
		return routes, nil
	})
	return routes, err
}

func dumpExactRoutes(ctx context.Context, s *socket, family uint8, n *network) ([]inventory.LocalRoute, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Table: unix.RT_TABLE_LOCAL}})
	var routes []inventory.LocalRoute
	err := s.dump(ctx, request, func(message []byte) error {
		route, ok, err := parseExactRoute(message, n)
		if ok {
			routes = append(routes, route)
		}
		return err
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the local routes: %w", err)
	}
	return routes, nil
}

// parseExactRoute takes an RTM_NEWROUTE message; ok is false for what is no local route to one address.
func parseExactRoute(message []byte, n *network) (inventory.LocalRoute, bool, error) {
	var route inventory.LocalRoute
	if len(message) < unix.SizeofRtMsg {
		return route, false, errMalformed
	}
	header := nl.DeserializeRtMsg(message)
	route.Protocol = header.Protocol
	table, link := uint32(header.Table), 0
	err := eachAttribute(message[unix.SizeofRtMsg:], func(kind uint16, value []byte) error {
		switch kind {
		case unix.RTA_DST:
			route.Address, _ = netip.AddrFromSlice(value)
		case unix.RTA_PREFSRC:
			route.Source, _ = netip.AddrFromSlice(value)
		case unix.RTA_OIF, unix.RTA_PRIORITY, unix.RTA_TABLE:
			number, ok := nativeEndian32(value)
			if !ok {
				return errMalformed
			}
			switch kind {
			case unix.RTA_OIF:
				link = int(number)
			case unix.RTA_PRIORITY:
				route.Metric = number
			default:
				table = number
			}
		}
		return nil
	})
	route.Link = n.links[link].name
	single := route.Address.IsValid() && int(header.Dst_len) == route.Address.BitLen()
	return route, err == nil && single && header.Type == unix.RTN_LOCAL && table == unix.RT_TABLE_LOCAL, err
}
