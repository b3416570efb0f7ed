package collect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// ipsetHeader is what the kernel tells of a set without its members.
type ipsetHeader struct {
	name       string // bytes as the kernel has them
	kind       string // type name, also one that nobody here knows
	family     kubeproxy.Family
	revision   uint8
	references uint32
	entries    uint32
	memory     uint32 // bytes
}

// ipsetMember is an element of a set, as far as attribution needs it. What the type of the set does not have is zero.
type ipsetMember struct {
	address  netip.Addr
	port     uint16
	protocol uint8 // IPPROTO_...
}

// parseIPSetMessage takes one message of a list of sets: nfgenmsg, then attributes (linux/netfilter/ipset/ip_set.h). The
// first message of a set has a header, the following ones only its name and more members. member takes the attributes of one, and may be nil.
func parseIPSetMessage(message []byte, member func([]byte) error) (header ipsetHeader, hasHeader bool, err error) {
	if len(message) < nl.SizeofNfgenmsg {
		return header, false, errMalformed
	}
	err = eachAttribute(message[nl.SizeofNfgenmsg:], func(kind uint16, value []byte) error {
		switch kind {
		case nl.IPSET_ATTR_SETNAME:
			header.name = untilNUL(value)
		case nl.IPSET_ATTR_TYPENAME:
			header.kind, hasHeader = untilNUL(value), true
		case nl.IPSET_ATTR_FAMILY:
			header.family = ipsetFamily(value)
		case nl.IPSET_ATTR_REVISION:
			header.revision = first(value)
		case nl.IPSET_ATTR_DATA:
			return header.counts(value)
		case nl.IPSET_ATTR_ADT:
			return eachMember(value, member)
		}
		return nil
	})
	if err == nil && header.name == "" {
		err = fmt.Errorf("a set without a name: %w", errMalformed)
	}
	return header, hasHeader, err
}

func (h *ipsetHeader) counts(data []byte) error {
	return eachAttribute(data, func(kind uint16, value []byte) error {
		var into *uint32
		switch kind {
		case nl.IPSET_ATTR_ELEMENTS:
			into = &h.entries
		case nl.IPSET_ATTR_REFERENCES:
			into = &h.references
		case nl.IPSET_ATTR_MEMSIZE:
			into = &h.memory
		default:
			return nil
		}
		if len(value) != 4 {
			return errMalformed
		}
		*into = binary.BigEndian.Uint32(value)
		return nil
	})
}

func eachMember(data []byte, visit func([]byte) error) error {
	if visit == nil {
		return nil
	}
	return eachAttribute(data, func(kind uint16, value []byte) error {
		if kind != nl.IPSET_ATTR_DATA {
			return nil
		}
		return visit(value)
	})
}

func (m *ipsetMember) parse(data []byte) error {
	return eachAttribute(data, func(kind uint16, value []byte) (err error) {
		switch kind {
		case nl.IPSET_ATTR_IP:
			m.address, err = ipsetAddress(value)
		case nl.IPSET_ATTR_PORT:
			if len(value) != 2 {
				return errMalformed
			}
			m.port = binary.BigEndian.Uint16(value)
		case nl.IPSET_ATTR_PROTO:
			m.protocol = first(value)
		}
		return err
	})
}

func ipsetAddress(nested []byte) (address netip.Addr, err error) {
	err = eachAttribute(nested, func(_ uint16, value []byte) error {
		parsed, ok := netip.AddrFromSlice(value)
		if !ok {
			return errMalformed
		}
		address = parsed
		return nil
	})
	return address, err
}

func ipsetFamily(value []byte) kubeproxy.Family {
	switch first(value) {
	case unix.NFPROTO_IPV4:
		return kubeproxy.IPv4
	case unix.NFPROTO_IPV6:
		return kubeproxy.IPv6
	default:
		return kubeproxy.FamilyAny
	}
}

func first(value []byte) uint8 {
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

func untilNUL(value []byte) string {
	text, _, _ := bytes.Cut(value, []byte{0})
	return string(text)
}
