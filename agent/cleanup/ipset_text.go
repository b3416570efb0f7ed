package cleanup

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of a member (linux/netfilter/ipset/ip_set.h).
const (
	ipsetIP2   = 20
	ipsetCIDR2 = 21
)

// lines are what "ipset save" prints of a set, for the types that kube-proxy makes.
func (s *savedSet) lines() string {
	var text strings.Builder
	fmt.Fprintf(&text, "create %s %s%s\n", s.Name, s.Type, s.optionsText())
	_, kinds, _ := strings.Cut(s.Type, ":")
	for _, member := range s.Members {
		fmt.Fprintf(&text, "add %s %s\n", s.Name, memberText(s.Type == "bitmap:port", strings.Split(kinds, ","), member))
	}
	return text.String()
}

func (s *savedSet) optionsText() string {
	all := flatAttributes(s.Create)
	options := flatAttributes(all[nl.IPSET_ATTR_DATA])
	if s.Type == "bitmap:port" {
		return fmt.Sprintf(" range %d-%d", bigEndian(options[nl.IPSET_ATTR_PORT]), bigEndian(options[nl.IPSET_ATTR_PORT_TO]))
	}
	text := " family inet"
	if family := all[nl.IPSET_ATTR_FAMILY]; len(family) == 1 && family[0] == unix.NFPROTO_IPV6 {
		text += "6"
	}
	text += fmt.Sprintf(" hashsize %d maxelem %d", bigEndian(options[ipsetHashsize]), bigEndian(options[ipsetMaxelem]))
	if size := options[ipsetBucketsize]; len(size) == 1 {
		text += fmt.Sprintf(" bucketsize %d", size[0])
	}
	if initval := options[ipsetInitval]; len(initval) == 4 {
		text += fmt.Sprintf(" initval 0x%08x", bigEndian(initval))
	}
	return text
}

// memberText puts a member together from the parts that its type names: "10.96.0.1,tcp:443".
func memberText(bare bool, kinds []string, member []byte) string {
	outer := flatAttributes(member)
	values := flatAttributes(outer[nl.IPSET_ATTR_DATA])
	var parts []string
	address := uint16(nl.IPSET_ATTR_IP)
	for _, kind := range kinds {
		switch {
		case kind == "port" && bare:
			parts = append(parts, strconv.FormatUint(bigEndian(values[nl.IPSET_ATTR_PORT]), 10))
		case kind == "port":
			parts = append(parts, fmt.Sprintf("%s:%d", protocolWord(values[nl.IPSET_ATTR_PROTO]), bigEndian(values[nl.IPSET_ATTR_PORT])))
		default:
			parts = append(parts, addressText(values, address))
			address = ipsetIP2
		}
	}
	return strings.Join(parts, ",")
}

// addressText is an address, or a network where a length is told that is not a single address'.
func addressText(values map[uint16][]byte, kind uint16) string {
	length := values[nl.IPSET_ATTR_CIDR]
	if kind == ipsetIP2 {
		length = values[ipsetCIDR2]
	}
	for _, value := range flatAttributes(values[kind]) {
		address, ok := netip.AddrFromSlice(value)
		if !ok {
			continue
		}
		if len(length) == 1 && int(length[0]) != address.BitLen() {
			return fmt.Sprintf("%s/%d", address, length[0])
		}
		return address.String()
	}
	return "?"
}

func protocolWord(value []byte) string {
	switch number := bigEndian(value); number {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	default:
		return strconv.FormatUint(number, 10)
	}
}

// flatAttributes are attributes by kind, flags of the kind dropped; none where they are not understood.
func flatAttributes(data []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	parsed, err := nl.ParseRouteAttr(data)
	if err != nil {
		return all
	}
	for _, attribute := range parsed {
		all[attribute.Attr.Type&nl.NLA_TYPE_MASK] = attribute.Value
	}
	return all
}

func bigEndian(value []byte) uint64 {
	var padded [8]byte
	if len(value) > len(padded) {
		return 0
	}
	copy(padded[len(padded)-len(value):], value)
	return binary.BigEndian.Uint64(padded[:])
}
