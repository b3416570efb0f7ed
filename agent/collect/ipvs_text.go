package collect

import (
	"encoding/binary"
	"net/netip"
)

// field cuts the next word off a line.
func field(line []byte) (word, rest []byte) {
	start := 0
	for start < len(line) && line[start] == ' ' {
		start++
	}
	end := start
	for end < len(line) && line[end] != ' ' {
		end++
	}
	return line[start:end], line[end:]
}

// parseDecimal reads a number as the kernel's %d prints it. Counters are atomic_t: one that ran over prints negative and
// counts as 0.
func parseDecimal(text []byte) (uint64, bool) {
	negative := len(text) > 1 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) == 0 || len(text) > 10 {
		return 0, false
	}
	var n uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if negative {
		return 0, true
	}
	return n, true
}

// parseHexAddrPort reads "0A600001:01BB" or "[fd00:0010:0096:0000:0000:0000:0000:000a]:0035".
func parseHexAddrPort(text []byte) (netip.AddrPort, bool) {
	if len(text) < 6 || text[len(text)-5] != ':' {
		return netip.AddrPort{}, false
	}
	port, ok := parseHex16(text[len(text)-4:])
	if !ok {
		return netip.AddrPort{}, false
	}
	host := text[:len(text)-5]
	if host[0] == '[' && host[len(host)-1] == ']' {
		address, ok := parseFullIPv6(host[1 : len(host)-1])
		return netip.AddrPortFrom(address, port), ok
	}
	address, ok := parseHexIPv4(host)
	return netip.AddrPortFrom(address, port), ok
}

// parseHexAddr reads an address of either family as /proc/net/ip_vs_conn has it: without brackets.
func parseHexAddr(text []byte) (netip.Addr, bool) {
	if len(text) == 8 {
		return parseHexIPv4(text)
	}
	return parseFullIPv6(text)
}

// parseHexIPv4 reads eight hexadecimal digits, most significant byte first.
func parseHexIPv4(text []byte) (netip.Addr, bool) {
	number, ok := parseHex32(text)
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], number)
	return netip.AddrFrom4(raw), ok
}

// parseFullIPv6 reads eight groups of four hexadecimal digits, as the kernel's %pI6 prints them.
func parseFullIPv6(text []byte) (netip.Addr, bool) {
	const length = len("0000:0000:0000:0000:0000:0000:0000:0000")
	if len(text) != length {
		return netip.Addr{}, false
	}
	var raw [16]byte
	for group := range 8 {
		start := 5 * group
		number, ok := parseHex16(text[start : start+4])
		if !ok || group < 7 && text[start+4] != ':' {
			return netip.Addr{}, false
		}
		binary.BigEndian.PutUint16(raw[2*group:], number)
	}
	return netip.AddrFrom16(raw), true
}

// parseHex16 reads exactly four hexadecimal digits.
func parseHex16(text []byte) (uint16, bool) {
	if len(text) != 4 {
		return 0, false
	}
	var n uint16
	for _, c := range text {
		digit, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		n = n<<4 | digit
	}
	return n, true
}

// parseHex32 reads exactly eight hexadecimal digits.
func parseHex32(text []byte) (uint32, bool) {
	if len(text) != 8 {
		return 0, false
	}
	high, okHigh := parseHex16(text[:4])
	low, okLow := parseHex16(text[4:])
	return uint32(high)<<16 | uint32(low), okHigh && okLow
}

func hexDigit(c byte) (uint16, bool) {
	switch {
	case c >= '0' && c <= '9':
		return uint16(c - '0'), true
	case c >= 'a' && c <= 'f':
		return uint16(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return uint16(c-'A') + 10, true
	default:
		return 0, false
	}
}
