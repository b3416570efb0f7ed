package collect

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of a real server in IPVS' generic netlink family (linux/ip_vs.h).
const (
	ipvsCommandDest  = 2  // IPVS_CMD_ATTR_DEST
	ipvsDestAddress  = 1  // IPVS_DEST_ATTR_ADDR
	ipvsDestPort     = 2  // IPVS_DEST_ATTR_PORT
	ipvsDestForward  = 3  // IPVS_DEST_ATTR_FWD_METHOD
	ipvsDestWeight   = 4  // IPVS_DEST_ATTR_WEIGHT
	ipvsDestActive   = 7  // IPVS_DEST_ATTR_ACTIVE_CONNS
	ipvsDestInactive = 8  // IPVS_DEST_ATTR_INACT_CONNS
	ipvsDestFamily   = 11 // IPVS_DEST_ATTR_ADDR_FAMILY
)

// appendDests asks for the real servers of a virtual server and writes their lines. One that is gone since has none.
func (s *ipvsService) appendDests(ctx context.Context, socket *socket, family int, text *bytes.Buffer) error {
	request := nl.NewNetlinkRequest(family, unix.NLM_F_DUMP)
	request.AddData(&nl.Genlmsg{Command: ipvsGetDest, Version: ipvsVersion})
	request.AddData(s.attribute())
	err := socket.dump(ctx, request, func(message []byte) error {
		return eachIPVSAttribute(message, ipvsCommandDest, func(value []byte) error {
			// Kernels before 3.18 say of no real server which family it has: that of its virtual server.
			dest := ipvsDest{ipvsService: ipvsService{family: s.family}}
			err := dest.parse(value)
			dest.appendLine(text)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("list the real servers of a virtual server: %w", err)
	}
	return nil
}

// attribute names a virtual server in a request (ip_vs_genl_parse_service).
func (s *ipvsService) attribute() *nl.RtAttr {
	name := nl.NewRtAttr(ipvsCommandService|unix.NLA_F_NESTED, nil)
	name.AddRtAttr(ipvsFamily, nl.Uint16Attr(s.family))
	if s.fwmark != 0 {
		name.AddRtAttr(ipvsFirewallMark, nl.Uint32Attr(s.fwmark))
		return name
	}
	name.AddRtAttr(ipvsProtocol, nl.Uint16Attr(s.protocol))
	name.AddRtAttr(ipvsAddress, s.rawAddress[:])
	name.AddRtAttr(ipvsPort, binary.BigEndian.AppendUint16(nil, s.port))
	return name
}

// ipvsDest is a real server; of ipvsService it has family, address and port.
type ipvsDest struct {
	ipvsService
	forward, weight, active, inactive uint32
}

func (d *ipvsDest) parse(data []byte) error {
	return eachAttribute(data, func(kind uint16, value []byte) error {
		if len(value) < ipvsDestSize(kind) {
			return errMalformed
		}
		switch kind {
		case ipvsDestAddress:
			d.rawAddress = [16]byte(value)
		case ipvsDestPort:
			d.port = binary.BigEndian.Uint16(value)
		case ipvsDestFamily:
			d.family = binary.NativeEndian.Uint16(value)
		case ipvsDestForward:
			d.forward = binary.NativeEndian.Uint32(value)
		case ipvsDestWeight:
			d.weight = binary.NativeEndian.Uint32(value)
		case ipvsDestActive:
			d.active = binary.NativeEndian.Uint32(value)
		case ipvsDestInactive:
			d.inactive = binary.NativeEndian.Uint32(value)
		}
		return nil
	})
}

func ipvsDestSize(kind uint16) int {
	switch kind {
	case ipvsDestAddress:
		return 16
	case ipvsDestPort, ipvsDestFamily:
		return 2
	case ipvsDestForward, ipvsDestWeight, ipvsDestActive, ipvsDestInactive:
		return 4
	default:
		return 0
	}
}

// appendLine writes the line of /proc/net/ip_vs, numbers as the kernel's %d does.
func (d *ipvsDest) appendLine(text *bytes.Buffer) {
	fmt.Fprintf(text, "  -> %s      %-7s %-6d %-10d %-10d\n", ipvsEndpoint(d.address()), ipvsForwardName(d.forward),
		int32(d.weight), int32(d.active), int32(d.inactive)) //nolint:gosec // int and atomic_t of the kernel's
}

// ipvsForwardName is ip_vs_fwd_name of net/netfilter/ipvs/ip_vs_ctl.c.
func ipvsForwardName(flags uint32) string {
	const mask = 7 // IP_VS_CONN_F_FWD_MASK
	switch flags & mask {
	case 1:
		return "Local"
	case 2:
		return "Tunnel"
	case 3:
		return "Route"
	default:
		return "Masq"
	}
}
