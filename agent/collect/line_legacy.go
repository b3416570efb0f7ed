package collect

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// Bits of invflags in struct ipt_ip and ip6t_ip6, which have the same numbers.
const (
	invertsIn          = 0x01
	invertsOut         = 0x02
	invertsSource      = 0x08
	invertsDestination = 0x10
	invertsProtocol    = 0x40
)

// legacyLine writes an entry of iptables-legacy, but for the chain that it jumps to.
func legacyLine(layout *legacyLayout, names lineNames, entry *legacyEntry) (ruleLine, error) {
	var line ruleLine
	line.addConditions(layout, entry.conditions)
	for rest := entry.matches; len(rest) > 0; {
		name, revision, info, size, err := legacyPart(rest)
		if err != nil {
			return line, err
		}
		line.addMatch(names, &nftExtension{name: name, revision: revision, info: info})
		rest = rest[size:]
	}
	switch {
	case len(entry.targetName) > 0:
		line.addTarget(names, &nftExtension{name: entry.targetName, revision: entry.revision, info: entry.targetData})
	case len(entry.targetData) >= 4:
		if verdict := legacyVerdictWord(entry.targetData); verdict != "" {
			line.add("-j", verdict)
		}
	}
	return line, nil
}

// legacyVerdictWord names a verdict: -NF_DROP - 1, -NF_ACCEPT - 1, -NF_REPEAT - 1, which means return.
func legacyVerdictWord(data []byte) string {
	switch int32(binary.NativeEndian.Uint32(data)) { //nolint:gosec // a signed number
	case -1:
		return "DROP"
	case -2:
		return "ACCEPT"
	case -5:
		return "RETURN"
	default:
		return ""
	}
}

// addConditions writes struct ipt_ip or ip6t_ip6: addresses, masks, interfaces, protocol.
func (l *ruleLine) addConditions(layout *legacyLayout, data []byte) {
	size := 4
	if layout.family == kubeproxy.IPv6 {
		size = 16
	}
	links := data[4*size:]
	protocol := links[64:]
	inverted := data[layout.flags+1]
	l.addPrefix("-s", data[:size], data[2*size:3*size], inverted&invertsSource != 0)
	l.addPrefix("-d", data[size:2*size], data[3*size:4*size], inverted&invertsDestination != 0)
	l.addLink("-i", links[:16], links[32:48], inverted&invertsIn != 0)
	l.addLink("-o", links[16:32], links[48:64], inverted&invertsOut != 0)
	if number := binary.NativeEndian.Uint16(protocol); number != 0 {
		l.not(inverted&invertsProtocol != 0)
		l.add("-p", protocolOption(uint8(number))) //nolint:gosec // a protocol of IP has eight bits
	}
}

func (l *ruleLine) addPrefix(option string, address, mask []byte, inverted bool) {
	if isZero(mask) && isZero(address) {
		return
	}
	l.not(inverted)
	l.add(option, prefixWord(address, mask))
}

// prefixWord writes address and mask, as a length where the mask is one.
func prefixWord(address, mask []byte) string {
	ip, _ := netip.AddrFromSlice(address)
	length, ended := 0, false
	for bit := range 8 * len(mask) {
		set := mask[bit/8]&(0x80>>(bit%8)) != 0
		if set && ended {
			other, _ := netip.AddrFromSlice(mask)
			return ip.String() + "/" + other.String()
		}
		if set {
			length++
		}
		ended = !set
	}
	return ip.String() + "/" + strconv.Itoa(length)
}

func (l *ruleLine) addLink(option string, name, mask []byte, inverted bool) {
	if isZero(mask) {
		return
	}
	shown := printable(cutNUL(name))
	if covered := len(strings.TrimRight(string(mask), "\x00")); covered <= len(cutNUL(name)) {
		shown = printable(name[:covered]) + "+" // the mask does not cover the NUL: any name that begins so
	}
	l.not(inverted)
	l.add(option, shown)
}

// protocolOption names a protocol as iptables-save does, and others by number.
func protocolOption(number uint8) string {
	switch number {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "ipv6-icmp"
	}
	if name := protocolName(number); name != "" {
		return strings.ToLower(name)
	}
	return strconv.Itoa(int(number))
}
