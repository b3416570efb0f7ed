package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// reals lists the real servers of a virtual server, as text to compare. One that is not there has none.
func (h *ipvsHandle) reals(key ipvsKey) ([]string, error) {
	answers, err := h.ask(ipvsGetDest, unix.NLM_F_DUMP, ipvsServiceAttribute(key))
	if err != nil {
		return nil, fmt.Errorf("list the real servers of %s: %w", key, err)
	}
	reals := make([]string, 0, len(answers))
	for _, answer := range answers {
		real, err := parseReal(answer, ipvsFamily(key.Address.Addr()))
		if err != nil {
			return nil, err
		}
		reals = append(reals, real)
	}
	return reals, nil
}

var (
	errReal           = errors.New("a real server is not understood")
	errOtherAttribute = errors.New("its first attribute is another")
)

// parseReal takes an answer of IPVS_CMD_GET_DEST. family is that of a real server which does not say its own.
func parseReal(answer []byte, family uint16) (string, error) {
	values, err := ipvsAttributes(answer, ipvsCmdDest)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errReal, err)
	}
	address, port, forward := values[ipvsDestAddress], values[ipvsDestPort], values[ipvsDestForward]
	if len(address) < 16 || len(port) < 2 || len(forward) < 4 {
		return "", errReal
	}
	if own := values[ipvsDestFamily]; len(own) >= 2 {
		family = binary.NativeEndian.Uint16(own)
	}
	if family == unix.AF_INET {
		address = address[:4]
	}
	host, _ := netip.AddrFromSlice(address)
	return realServerText(netip.AddrPortFrom(host, binary.BigEndian.Uint16(port)), forwardName(binary.NativeEndian.Uint32(forward))), nil
}

// ipvsAttributes are those within the outer attribute of one kind, which must be the first.
func ipvsAttributes(answer []byte, kind uint16) (map[uint16][]byte, error) {
	outer, err := nl.ParseRouteAttr(answer[min(nl.SizeofGenlmsg, len(answer)):])
	if err != nil {
		return nil, err
	}
	if len(outer) == 0 || outer[0].Attr.Type&nl.NLA_TYPE_MASK != kind {
		return nil, errOtherAttribute
	}
	inner, err := nl.ParseRouteAttr(outer[0].Value)
	values := make(map[uint16][]byte, len(inner))
	for _, attribute := range inner {
		values[attribute.Attr.Type&nl.NLA_TYPE_MASK] = attribute.Value
	}
	return values, err
}

// forwardName is the name of a forwarding method in the IPVS table: the opposite of forwardMethod.
func forwardName(method uint32) string {
	for _, name := range []string{"Local", "Tunnel", "Route"} {
		if forwardMethod(name) == method&ipvsForwardMask {
			return name
		}
	}
	return "Masq"
}

const ipvsForwardMask = 7 // IP_VS_CONN_F_FWD_MASK
