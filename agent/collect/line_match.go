package collect

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// addMatch writes a match of x_tables. Structures are those of include/uapi/linux/netfilter/xt_*.h.
func (l *ruleLine) addMatch(names lineNames, match *nftExtension) {
	name, info := string(match.name), match.info
	switch {
	case name == "comment":
		l.add("-m", "comment", "--comment", quoted(cutNUL(info)))
	case name == "tcp" && len(info) >= 12:
		l.add("-m", "tcp")
		l.addPorts(info, info[11])
		if info[9] != 0 {
			l.not(info[11]&4 != 0)
			l.add("--tcp-flags", fmt.Sprintf("0x%x/0x%x", info[9], info[10]))
		}
	case name == "udp" && len(info) >= 9:
		l.add("-m", "udp")
		l.addPorts(info, info[8])
	case name == "sctp" && len(info) >= sctpMatchSize && binary.NativeEndian.Uint32(info[sctpMatchFlags:])&^3 == 0:
		l.addSCTP(info)
	case name == "mark" && match.revision == markMatchRevision && len(info) >= markMatchSize:
		use := markPair(info)
		l.add("-m", "mark")
		l.not(info[8] != 0)
		l.add("--mark", fmt.Sprintf("0x%x/0x%x", use.value, use.mask))
	case name == "set" && match.revision > 0 && match.revision <= newestSetMatch && len(info) >= setInfoSize:
		l.addSetMatch(names, info)
	case name == "conntrack" && l.addState(match.revision, info):
	case name == "statistic" && len(info) >= 8 && binary.NativeEndian.Uint16(info) == 0:
		l.add("-m", "statistic", "--mode", "random")
		l.not(info[2]&1 != 0)
		l.add("--probability", fmt.Sprintf("%.11f", float64(binary.NativeEndian.Uint32(info[4:]))/(1<<31)))
	case name == "addrtype" && match.revision == 1 && len(info) >= 8:
		l.addTypes(info)
	case name == "nfacct":
		l.add("-m", "nfacct", "--nfacct-name", printable(cutNUL(info)))
	default:
		l.add("-m", printable(match.name), fmt.Sprintf("[rev %d: %s]", match.revision, raw(info)))
	}
}

// Offsets in struct xt_sctp_info: ports of destination and source, 256 bytes of chunk types, chunk flags, flags, inverted ones.
const (
	sctpMatchFlags    = 284
	sctpMatchInverted = 288
	sctpMatchSize     = 292
)

// addSCTP writes a match of ports alone. Unlike the others it has the destination first.
func (l *ruleLine) addSCTP(info []byte) {
	flags := binary.NativeEndian.Uint32(info[sctpMatchFlags:])
	ports := slices.Concat(info[4:8], info[:4])
	for i := range 2 {
		if flags&(1<<i) == 0 { // it does not look at them
			copy(ports[4*i:], []byte{0, 0, 0xff, 0xff})
		}
	}
	l.add("-m", "sctp")
	l.addPorts(ports, info[sctpMatchInverted])
}

// addPorts writes two ranges of ports, which the matches tcp and udp begin with. Bits 1 and 2 of inverted are theirs.
func (l *ruleLine) addPorts(info []byte, inverted byte) {
	for i, option := range []string{"--sport", "--dport"} {
		low, high := binary.NativeEndian.Uint16(info[4*i:]), binary.NativeEndian.Uint16(info[4*i+2:])
		if low == 0 && high == 0xffff {
			continue
		}
		l.not(inverted&(1<<i) != 0)
		text := strconv.Itoa(int(low))
		if high != low {
			text += ":" + strconv.Itoa(int(high))
		}
		l.add(option, text)
	}
}

// addSetMatch writes the name of a set and, for each of its dimensions, source or destination: struct xt_set_info.
func (l *ruleLine) addSetMatch(names lineNames, info []byte) {
	directions := make([]string, 0, info[2])
	for dimension := range min(int(info[2]), 6) {
		direction := "dst"
		if info[3]&(1<<(dimension+1)) != 0 {
			direction = "src"
		}
		directions = append(directions, direction)
	}
	l.add("-m", "set")
	l.not(info[3]&1 != 0)
	l.add("--match-set", names.set(binary.NativeEndian.Uint16(info)), strings.Join(directions, ","))
}

// addState writes a conntrack match that looks at the state alone.
func (l *ruleLine) addState(revision uint32, info []byte) bool {
	if revision < 1 || revision > 3 || len(info) < conntrackInfoSize ||
		binary.NativeEndian.Uint16(info[conntrackMatchFlags:]) != conntrackMatchState {
		return false
	}
	mask := uint16(info[conntrackStateMask])
	if revision > 1 {
		mask = binary.NativeEndian.Uint16(info[conntrackStateMask:])
	}
	// In the order in which iptables-save writes them.
	names := []struct {
		bit  int
		name string
	}{{0, "INVALID"}, {3, "NEW"}, {2, "RELATED"}, {1, "ESTABLISHED"}, {8, "UNTRACKED"}, {6, "SNAT"}, {7, "DNAT"}}
	var states []string
	for _, state := range names {
		if mask&(1<<state.bit) != 0 {
			states = append(states, state.name)
		}
	}
	l.add("-m", "conntrack")
	l.not(binary.NativeEndian.Uint16(info[conntrackInvertFlags:])&conntrackMatchState != 0)
	l.add("--ctstate", strings.Join(states, ","))
	return true
}

// addTypes writes an addrtype match: masks of route types for source and destination, and flags.
func (l *ruleLine) addTypes(info []byte) {
	names := []string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT"}
	flags := binary.NativeEndian.Uint32(info[4:])
	l.add("-m", "addrtype")
	for i, option := range []string{"--src-type", "--dst-type"} {
		var types []string
		for bit, name := range names {
			if binary.NativeEndian.Uint16(info[2*i:])&(1<<bit) != 0 {
				types = append(types, name)
			}
		}
		if len(types) > 0 {
			l.not(flags&(1<<i) != 0)
			l.add(option, strings.Join(types, ","))
		}
	}
}
