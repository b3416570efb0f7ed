package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// maxMembers bounds the members of one set that are told.
	maxMembers = 100_000
	// ipsetNoMatch is IPSET_FLAG_NOMATCH of an element (linux/netfilter/ipset/ip_set.h).
	ipsetNoMatch = 1 << 2
)

// membersOf hands the members of a set to out, one an item, as `ipset save` prints them: "add NAME 10.96.0.1,tcp:443". An
// error wraps ErrNotThere when there is no such set, and ErrTooMany when there are more than maxMembers.
func membersOf(ctx context.Context, mods *modules, name string, out *detailItems) error {
	s, err := openIPSet(mods)
	if errors.Is(err, errNoIPSet) {
		return fmt.Errorf("ipset %s: %w: %w", name, err, ErrNotThere)
	}
	if err != nil {
		return err
	}
	defer s.close()
	items, _, err := repeat(ctx, func(ctx context.Context) ([]string, error) { return listMembers(ctx, s, name) })
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := out.add(item); err != nil {
			return err
		}
	}
	return nil
}

// listMembers reads them once: errTorn when the set changed meanwhile. It goes by the name as reports have it.
func listMembers(ctx context.Context, s *socket, name string) ([]string, error) {
	wanted, err := unprintable(name)
	if err != nil {
		return nil, err
	}
	headers, err := dumpIPSetHeaders(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, header := range headers {
		if string(wanted) == header.name {
			return listMembersOf(ctx, s, header)
		}
	}
	return nil, fmt.Errorf("ipset %s: %w", name, ErrNotThere)
}

func listMembersOf(ctx context.Context, s *socket, header ipsetHeader) ([]string, error) {
	write, known := memberWriters()[header.kind]
	if !known {
		return nil, fmt.Errorf("members of ipset %s: nobody here knows the type %s", printable([]byte(header.name)), printable([]byte(header.kind)))
	}
	var items []string
	prefix := "add " + printable([]byte(header.name)) + " "
	err := dumpElements(ctx, s, header.set(), func(data []byte) error {
		var element ipsetElement
		if err := element.parse(data); err != nil {
			return err
		}
		if len(items) <= maxMembers { // the one too many says that there are more
			items = append(items, prefix+write(&element)+element.options())
		}
		return nil
	})
	return items, err
}

// ipsetElement is an element of a set with everything that kube-proxy's types have.
type ipsetElement struct {
	ipsetMember
	second         netip.Addr
	secondBits     uint8 // 0 for all
	timeout, flags *uint32
	packets, bytes *uint64
	comment        string
}

func (e *ipsetElement) parse(data []byte) error {
	if err := e.ipsetMember.parse(data); err != nil {
		return err
	}
	return eachAttribute(data, func(kind uint16, value []byte) (err error) {
		switch kind {
		case nl.IPSET_ATTR_IP2:
			e.second, err = ipsetAddress(value)
		case nl.IPSET_ATTR_CIDR2:
			e.secondBits = first(value)
		case nl.IPSET_ATTR_COMMENT:
			e.comment = untilNUL(value)
		case nl.IPSET_ATTR_TIMEOUT, nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_ATTR_PACKETS, nl.IPSET_ATTR_BYTES:
			err = e.number(kind, value)
		}
		return err
	})
}

func (e *ipsetElement) number(kind uint16, value []byte) error {
	switch {
	case len(value) == 4:
		number := binary.BigEndian.Uint32(value)
		if kind == nl.IPSET_ATTR_TIMEOUT {
			e.timeout = &number
		} else {
			e.flags = &number
		}
	case len(value) == 8:
		number := binary.BigEndian.Uint64(value)
		if kind == nl.IPSET_ATTR_PACKETS {
			e.packets = &number
		} else {
			e.bytes = &number
		}
	default:
		return errMalformed
	}
	return nil
}

// memberWriters tells, for each type that kube-proxy uses, how ipset writes an element of it.
func memberWriters() map[string]func(*ipsetElement) string {
	return map[string]func(*ipsetElement) string{
		"hash:ip":         func(e *ipsetElement) string { return e.address.String() },
		"bitmap:port":     func(e *ipsetElement) string { return strconv.Itoa(int(e.port)) },
		"hash:ip,port":    (*ipsetElement).addressAndPort,
		"hash:ip,port,ip": func(e *ipsetElement) string { return e.addressAndPort() + "," + e.second.String() },
		"hash:ip,port,net": func(e *ipsetElement) string {
			text := e.addressAndPort() + "," + e.second.String()
			if e.secondBits > 0 && int(e.secondBits) < e.second.BitLen() {
				text += "/" + strconv.Itoa(int(e.secondBits))
			}
			return text
		},
	}
}

func (e *ipsetElement) addressAndPort() string {
	return e.address.String() + "," + ipsetProtocol(e.protocol) + ":" + strconv.Itoa(int(e.port))
}

// ipsetProtocol is a protocol as ipset writes it: by its name where the port is one.
func ipsetProtocol(number uint8) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_UDPLITE:
		return "udplite"
	default:
		return strconv.Itoa(int(number))
	}
}

// options are what follows the element, in the order of ipset (lib/ipset_hash_ipportnet.c).
func (e *ipsetElement) options() string {
	text := ""
	if e.timeout != nil {
		text += fmt.Sprintf(" timeout %d", *e.timeout)
	}
	if e.flags != nil && *e.flags&ipsetNoMatch != 0 {
		text += " nomatch"
	}
	if e.packets != nil {
		text += fmt.Sprintf(" packets %d", *e.packets)
	}
	if e.bytes != nil {
		text += fmt.Sprintf(" bytes %d", *e.bytes)
	}
	if e.comment != "" {
		text += ` comment "` + printable([]byte(e.comment)) + `"`
	}
	return text
}
