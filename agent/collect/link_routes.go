package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// route is what is read of one route. What it does not have is zero.
type route struct {
	family      uint8
	kind        uint8 // unix.RTN_...
	table       uint32
	destination netip.Prefix
	link        int // index of the output device
	metric      uint32
	preferred   netip.Addr // source
	gateway     netip.Addr
}

// dumpRoutes hands the routes of one table and family to visit. link is the index of an output device, 0 for any. The
// kernel filters where it can (NETLINK_GET_STRICT_CHK, since 4.20); older ones send everything, so it is filtered here too.
func dumpRoutes(ctx context.Context, s *socket, family uint8, table uint32, link int, visit func(route)) error {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	// Tables that matter here are all below 256.
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Table: uint8(table)}}) //nolint:gosec // see above
	if link > 0 {
		request.AddData(nl.NewRtAttr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(link))))
	}
	err := s.dump(ctx, request, func(message []byte) error {
		one, err := parseRoute(message)
		if err == nil && one.family == family && one.table == table && (link == 0 || one.link == link) {
			visit(one)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // the kernel has no such table, or no such family
	}
	if err != nil {
		return fmt.Errorf("list the routes of table %d: %w", table, err)
	}
	return nil
}

// askStrictly makes the kernel filter dumps by what the request says. One that cannot sends everything.
func (s *socket) askStrictly() error {
	err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	return err
}

// parseRoute takes an RTM_NEWROUTE message: struct rtmsg, then attributes.
func parseRoute(message []byte) (route, error) {
	if len(message) < unix.SizeofRtMsg {
		return route{}, errMalformed
	}
	header := nl.DeserializeRtMsg(message)
	one := route{family: header.Family, kind: header.Type, table: uint32(header.Table)}
	var destination netip.Addr
	err := eachAttribute(message[unix.SizeofRtMsg:], func(kind uint16, value []byte) error {
		switch kind {
		case unix.RTA_DST:
			destination, _ = netip.AddrFromSlice(value)
		case unix.RTA_PREFSRC:
			one.preferred, _ = netip.AddrFromSlice(value)
		case unix.RTA_GATEWAY:
			one.gateway, _ = netip.AddrFromSlice(value)
		default:
			return one.number(kind, value)
		}
		return nil
	})
	one.destination = netip.PrefixFrom(destination, int(header.Dst_len))
	return one, err
}

func (r *route) number(kind uint16, value []byte) error {
	switch kind {
	case unix.RTA_OIF, unix.RTA_TABLE, unix.RTA_PRIORITY:
	default:
		return nil
	}
	if len(value) != 4 {
		return errMalformed
	}
	number := binary.NativeEndian.Uint32(value)
	switch kind {
	case unix.RTA_OIF:
		r.link = int(number)
	case unix.RTA_TABLE:
		r.table = number
	case unix.RTA_PRIORITY:
		r.metric = number
	}
	return nil
}

// localRoutes counts the routes that make the link's addresses the node's own, and those that prefer the address itself as
// the source of a connection to it.
type localRoutes struct{ all, selfSource uint64 }

func (l *localRoutes) see(one route) {
	if one.kind != unix.RTN_LOCAL || !one.destination.IsSingleIP() {
		return
	}
	l.all++
	// A local route of IPv6 prefers none: then the rules choose the destination itself (RFC 6724, section 5, rule 1).
	itself := one.preferred == one.destination.Addr() || one.family == unix.AF_INET6 && !one.preferred.IsValid()
	if itself {
		l.selfSource++
	}
}

func readLocalRoutes(ctx context.Context, s *socket, link int) (localRoutes, error) {
	routes, _, err := repeat(ctx, func(ctx context.Context) (localRoutes, error) {
		var routes localRoutes
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if err := dumpRoutes(ctx, s, family, unix.RT_TABLE_LOCAL, link, routes.see); err != nil {
				return routes, err
			}
		}
		return routes, nil
	})
	return routes, err
}
