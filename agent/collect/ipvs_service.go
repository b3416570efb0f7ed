package collect

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// More numbers of IPVS' generic netlink family (linux/ip_vs.h).
const (
	ipvsGetDest       = 8 // IPVS_CMD_GET_DEST
	ipvsFirewallMark  = 5 // IPVS_SVC_ATTR_FWMARK
	ipvsScheduler     = 6 // IPVS_SVC_ATTR_SCHED_NAME
	ipvsFlags         = 7 // IPVS_SVC_ATTR_FLAGS
	ipvsTimeout       = 8 // IPVS_SVC_ATTR_TIMEOUT
	ipvsNetmask       = 9 // IPVS_SVC_ATTR_NETMASK
	ipvsFlagPersist   = 1 // IP_VS_SVC_F_PERSISTENT
	ipvsFlagOnePacket = 4 // IP_VS_SVC_F_ONEPACKET
)

// ipvsService is one virtual server of the kernel's own list. Unlike /proc/net/ip_vs it tells IPv4 firewall marks from IPv6
// ones.
type ipvsService struct {
	family, protocol uint16
	rawAddress       [16]byte
	port             uint16
	fwmark           uint32
	scheduler        string
	flags, timeout   uint32
	netmask          uint32 // as a number of the host's byte order
}

// listIPVSServices asks for the virtual servers of this network namespace, in the kernel's order: that of /proc/net/ip_vs.
// The kernel keeps its place by counting those of all namespaces each time (ip_vs_genl_dump_services), so that unlike the
// file none is lost to another namespace's.
func listIPVSServices(ctx context.Context, s *socket, family int) ([]ipvsService, error) {
	var list []ipvsService
	request := nl.NewNetlinkRequest(family, unix.NLM_F_DUMP)
	request.AddData(&nl.Genlmsg{Command: ipvsGetService, Version: ipvsVersion})
	err := s.dump(ctx, request, func(message []byte) error {
		return eachIPVSAttribute(message, ipvsCommandService, func(value []byte) error {
			service, err := parseIPVSService(value)
			list = append(list, service)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list the virtual servers: %w", err)
	}
	return list, nil
}

// eachIPVSAttribute hands the attributes of one kind in a message of generic netlink to visit.
func eachIPVSAttribute(message []byte, wanted uint16, visit func([]byte) error) error {
	if len(message) < nl.SizeofGenlmsg {
		return errMalformed
	}
	return eachAttribute(message[nl.SizeofGenlmsg:], func(kind uint16, value []byte) error {
		if kind != wanted {
			return nil
		}
		return visit(value)
	})
}

func parseIPVSService(data []byte) (service ipvsService, err error) {
	err = eachAttribute(data, func(kind uint16, value []byte) error {
		if kind >= ipvsFamily && kind <= ipvsNetmask && len(value) < ipvsServiceSize(kind) {
			return errMalformed
		}
		service.set(kind, value)
		return nil
	})
	return service, err
}

// ipvsServiceSize is how many bytes an attribute has at least.
func ipvsServiceSize(kind uint16) int {
	switch kind {
	case ipvsFamily, ipvsProtocol, ipvsPort:
		return 2
	case ipvsFirewallMark, ipvsFlags, ipvsTimeout, ipvsNetmask:
		return 4
	case ipvsAddress:
		return 16
	default:
		return 1
	}
}

func (s *ipvsService) set(kind uint16, value []byte) {
	switch kind {
	case ipvsFamily:
		s.family = binary.NativeEndian.Uint16(value)
	case ipvsProtocol:
		s.protocol = binary.NativeEndian.Uint16(value)
	case ipvsAddress:
		s.rawAddress = [16]byte(value)
	case ipvsPort:
		s.port = binary.BigEndian.Uint16(value)
	case ipvsFirewallMark:
		s.fwmark = binary.NativeEndian.Uint32(value)
	case ipvsScheduler:
		s.scheduler = string(bytes.TrimRight(value, "\x00"))
	case ipvsFlags:
		s.flags = binary.NativeEndian.Uint32(value)
	case ipvsTimeout:
		s.timeout = binary.NativeEndian.Uint32(value)
	case ipvsNetmask:
		s.netmask = binary.BigEndian.Uint32(value)
	}
}

// tableKey names a virtual server as /proc/net/ip_vs does.
type tableKey struct {
	serverKey
	fwmark uint32
}

func (s virtualServer) tableKey() tableKey { return tableKey{s.key(), s.fwmark} }

func (s *ipvsService) key() tableKey {
	if s.fwmark != 0 {
		return tableKey{serverKey{protocol: fwmProtocol}, s.fwmark}
	}
	return tableKey{serverKey: serverKey{ipvsProtocolWord(s.protocol), s.address()}}
}

func (s *ipvsService) address() netip.AddrPort {
	if s.family == unix.AF_INET6 {
		return netip.AddrPortFrom(netip.AddrFrom16(s.rawAddress), s.port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.rawAddress[:4])), s.port)
}

// ipvsProtocolWord is ip_vs_proto_name of net/netfilter/ipvs/ip_vs_core.c.
func ipvsProtocolWord(protocol uint16) string {
	switch protocol {
	case unix.IPPROTO_IP:
		return "IP"
	case unix.IPPROTO_TCP:
		return "TCP"
	case unix.IPPROTO_UDP:
		return "UDP"
	case unix.IPPROTO_SCTP:
		return "SCTP"
	case unix.IPPROTO_ICMP:
		return "ICMP"
	case unix.IPPROTO_ICMPV6:
		return "ICMPv6"
	default:
		return fmt.Sprintf("IP_%d", protocol)
	}
}

// appendLine writes the line of /proc/net/ip_vs (ip_vs_info_seq_show), but for the time of a persistent one: seconds, where
// the kernel prints jiffies of unknown length.
func (s *ipvsService) appendLine(text *bytes.Buffer) {
	onePacket := ""
	if s.flags&ipvsFlagOnePacket != 0 {
		onePacket = "ops "
	}
	switch {
	case s.fwmark != 0:
		fmt.Fprintf(text, "FWM  %08X %s %s", s.fwmark, s.scheduler, onePacket)
	case s.family == unix.AF_INET6:
		fmt.Fprintf(text, "%s  %s %s ", ipvsProtocolWord(s.protocol), ipvsEndpoint(s.address()), s.scheduler)
	default:
		fmt.Fprintf(text, "%s  %s %s %s ", ipvsProtocolWord(s.protocol), ipvsEndpoint(s.address()), s.scheduler, onePacket)
	}
	if s.flags&ipvsFlagPersist != 0 {
		fmt.Fprintf(text, "persistent %d %08X", s.timeout, s.netmask)
	}
	text.WriteByte('\n')
}

// ipvsEndpoint writes "0A600001:01BB" or "[fd00:0010:0096:0000:0000:0000:0000:000a]:0035".
func ipvsEndpoint(address netip.AddrPort) string {
	if address.Addr().Is4() {
		return fmt.Sprintf("%08X:%04X", address.Addr().AsSlice(), address.Port())
	}
	return fmt.Sprintf("[%s]:%04X", strings.ToLower(address.Addr().StringExpanded()), address.Port())
}
