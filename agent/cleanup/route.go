package cleanup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// ownMetric is that of the local routes on lo. It has to be worse than the kernel's own (0), or the kernel would refuse
// the second as the same route.
const ownMetric = 1

// sources changes which address of its own the node uses when it connects to a VIP.
//
// The kernel makes a local route for each address of a link; a connection to that address leaves with it as its source,
// and hangs once the address is gone. With another preferred source it does not.
type sources struct {
	handle *netlink.Handle
	link   int // index of kube-ipvs0
	lo     int
	// onLink are the addresses that have exactly one local route, over kube-ipvs0. An address that is also elsewhere is
	// not touched: replacing a route takes the first of the same destination, whoever's it is.
	onLink map[netip.Addr]bool
	// addresses of IPv6 on the link; nil until one has to be made anew.
	addresses map[netip.Addr]*netlink.Addr
}

// openSources reads the local routes of both families.
func openSources(handle *netlink.Handle) (*sources, error) {
	link, err := findIPVSLink(handle)
	if err != nil {
		return nil, err
	}
	s := &sources{handle: handle, onLink: map[netip.Addr]bool{}}
	if link == nil {
		return s, nil
	}
	lo, err := handle.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("look for lo: %w", err)
	}
	s.link, s.lo = link.Attrs().Index, lo.Attrs().Index
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := s.readAgain(family); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// maxDumps bounds how often routes are listed that others keep changing.
const maxDumps = 8

func (s *sources) readAgain(family int) error {
	err := s.read(family)
	for dumps := 1; dumps < maxDumps && errors.Is(err, netlink.ErrDumpInterrupted); dumps++ {
		err = s.read(family)
	}
	return err
}

func (s *sources) read(family int) error {
	seen := map[netip.Addr]int{}
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL}
	err := s.handle.RouteListFilteredIter(family, filter, netlink.RT_FILTER_TABLE, func(route netlink.Route) bool {
		address, host := hostRoute(&route)
		if host && route.Type == unix.RTN_LOCAL && !s.isOwn(&route) {
			seen[address]++
			s.onLink[address] = route.LinkIndex == s.link && seen[address] == 1
		}
		return true
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // no IPv6
	}
	if err != nil {
		return fmt.Errorf("list the local routes: %w", err)
	}
	return nil
}

func (s *sources) isOwn(route *netlink.Route) bool {
	return route.LinkIndex == s.lo && route.Protocol == inventory.RouteProtocol
}

// hostRoute is the address of a route to a single one.
func hostRoute(route *netlink.Route) (netip.Addr, bool) {
	if route.Dst == nil {
		return netip.Addr{}, false
	}
	ones, bits := route.Dst.Mask.Size()
	address, ok := netip.AddrFromSlice(route.Dst.IP)
	return address.Unmap(), ok && ones == bits && bits > 0
}

func hostNet(address netip.Addr) *net.IPNet {
	return &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
}

var errNoPlainRoute = errors.New("its local route is missing, or is not over kube-ipvs0 alone")

// set gives connections to a VIP another source.
func (s *sources) set(vip, source netip.Addr) error {
	if !s.onLink[vip] {
		return fmt.Errorf("set the source for %s: %w", vip, errNoPlainRoute)
	}
	var err error
	if vip.Is4() {
		err = s.handle.RouteChange(s.kernelRoute(vip, source))
	} else {
		err = s.moveToLo(vip, source)
	}
	if err != nil {
		return fmt.Errorf("set the source for %s to %s: %w", vip, source, err)
	}
	return nil
}

// kernelRoute is the route that the kernel makes for an address, with a preferred source.
func (s *sources) kernelRoute(vip, source netip.Addr) *netlink.Route {
	return &netlink.Route{
		LinkIndex: s.link, Dst: hostNet(vip), Src: source.AsSlice(), Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Protocol: unix.RTPROT_KERNEL, Scope: unix.RT_SCOPE_HOST,
	}
}

// ownRoute is the route on lo that stands in for the kernel's.
func (s *sources) ownRoute(vip, source netip.Addr) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: s.lo, Dst: hostNet(vip), Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Protocol: inventory.RouteProtocol, Priority: ownMetric,
	}
	if source.IsValid() {
		route.Src = source.AsSlice()
	}
	return route
}

// moveToLo is for IPv6: the kernel refuses a route over a link that is down, as kube-ipvs0 is ("Nexthop device is not up").
// The route on lo is used once the kernel's own is deleted; the address stays local all the time.
func (s *sources) moveToLo(vip, source netip.Addr) error {
	if err := s.handle.RouteAdd(s.ownRoute(vip, source)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	kernels := s.kernelRoute(vip, vip)
	kernels.Src, kernels.Scope = nil, 0
	if err := s.handle.RouteDel(kernels); err != nil {
		return errors.Join(err, s.deleteOwn(vip))
	}
	return nil
}

// reset undoes set, for a clean-up that does not go on.
func (s *sources) reset(vip netip.Addr) error {
	var err error
	if vip.Is4() {
		err = s.handle.RouteChange(s.kernelRoute(vip, vip))
	} else {
		err = s.moveFromLo(vip)
	}
	if err != nil {
		return fmt.Errorf("put back the route to %s: %w", vip, err)
	}
	return nil
}

// moveFromLo has the kernel make its own route again, which it does for an address that comes anew. The route on lo keeps
// the address local meanwhile.
func (s *sources) moveFromLo(vip netip.Addr) error {
	link, err := s.handle.LinkByIndex(s.link)
	if err != nil {
		return err
	}
	address, err := s.addressOf(link, vip)
	if err != nil {
		return err
	}
	if err := s.handle.AddrDel(link, address); err != nil {
		return err
	}
	if err := s.handle.AddrAdd(link, address); err != nil {
		return err
	}
	return s.deleteOwn(vip)
}

// addressOf is a VIP as it is on the link, with what has to be said to make the same again. They are listed once.
func (s *sources) addressOf(link netlink.Link, vip netip.Addr) (*netlink.Addr, error) {
	if s.addresses == nil {
		list, err := s.handle.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			return nil, fmt.Errorf("list the addresses of %s: %w", link.Attrs().Name, err)
		}
		s.addresses = map[netip.Addr]*netlink.Addr{}
		for _, address := range list {
			if own, ok := netip.AddrFromSlice(address.IP); ok {
				s.addresses[own] = &netlink.Addr{IPNet: address.IPNet, Flags: address.Flags & unix.IFA_F_NODAD}
			}
		}
	}
	address := s.addresses[vip]
	if address == nil {
		return nil, unix.EADDRNOTAVAIL
	}
	return address, nil
}

// deleteOwn deletes the route on lo. One that is gone is no error.
func (s *sources) deleteOwn(vip netip.Addr) error {
	return deleteOwnRoute(s.handle, s.ownRoute(vip, netip.Addr{}))
}

func deleteOwnRoute(handle *netlink.Handle, route *netlink.Route) error {
	err := handle.RouteDel(route)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
