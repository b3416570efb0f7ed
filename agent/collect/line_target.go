package collect

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"offramp.dev/offramp/internal/kubeproxy"
)

// addTarget writes a target of x_tables that is no verdict.
func (l *ruleLine) addTarget(names lineNames, target *nftExtension) {
	name, info := string(target.name), target.info
	l.add("-j", printable(target.name))
	switch {
	case name == "MARK" && target.revision == markTargetRevision && len(info) >= markTargetSize:
		use := markPair(info)
		l.add("--set-xmark", fmt.Sprintf("0x%x/0x%x", use.value, use.mask))
	case name == "DNAT" || name == "SNAT":
		option := map[string]string{"DNAT": "--to-destination", "SNAT": "--to-source"}[name]
		if address, ok := natAddress(target.revision, info, names.family == kubeproxy.IPv6); ok {
			l.add(option, address)
			return
		}
		l.addRaw(target)
	case name == "SET":
		for _, index := range setsOfTarget(target.revision, info) {
			l.add("[set " + names.set(index) + "]")
		}
	case name == "MASQUERADE" && len(info) >= 8:
		l.addMasquerade(names, info)
	case name == "REJECT" && len(info) >= 4:
		l.add("--reject-with", rejection(binary.NativeEndian.Uint32(info), names.family))
	case raw(info) == "":
	default:
		l.addRaw(target)
	}
}

// addMasquerade writes how ports are chosen, from the flags of struct nf_nat_ipv4_multi_range_compat or nf_nat_range.
func (l *ruleLine) addMasquerade(names lineNames, info []byte) {
	flags := binary.NativeEndian.Uint32(info[4:])
	if names.family == kubeproxy.IPv6 {
		flags = binary.NativeEndian.Uint32(info)
	}
	switch {
	case flags&natRandomFully != 0:
		l.add("--random-fully")
	case flags&natRandom != 0:
		l.add("--random")
	}
}

// rejection names what a packet is answered with: ipt_REJECT.h, ip6t_REJECT.h.
func rejection(number uint32, family kubeproxy.Family) string {
	answers := []string{
		"icmp-net-unreachable", "icmp-host-unreachable", "icmp-proto-unreachable", "icmp-port-unreachable", "",
		"icmp-net-prohibited", "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited",
	}
	if family == kubeproxy.IPv6 {
		answers = []string{
			"icmp6-no-route", "icmp6-adm-prohibited", "", "icmp6-addr-unreachable", "icmp6-port-unreachable", "", "tcp-reset",
		}
	}
	if int(number) < len(answers) && answers[number] != "" {
		return answers[number]
	}
	return fmt.Sprintf("[%d]", number)
}

func (l *ruleLine) addRaw(target *nftExtension) {
	l.add(fmt.Sprintf("[rev %d: %s]", target.revision, raw(target.info)))
}

// Flags of linux/netfilter/nf_nat.h.
const (
	natMapsAddress = 1 // NF_NAT_RANGE_MAP_IPS
	natMapsPort    = 2 // NF_NAT_RANGE_PROTO_SPECIFIED
	natRandom      = 1 << 2
	natRandomFully = 1 << 4
)

// natAddress reads struct nf_nat_ipv4_multi_range_compat (revision 0 of IPv4), nf_nat_range (1) and nf_nat_range2 (2).
func natAddress(revision uint32, info []byte, ipv6 bool) (string, bool) {
	var flags uint32
	var address netip.Addr
	var port []byte
	switch {
	case revision == 0 && len(info) >= 20:
		flags, port = binary.NativeEndian.Uint32(info[4:]), info[16:18]
		address, _ = netip.AddrFromSlice(info[8:12])
	case revision > 0 && revision <= 2 && len(info) >= 40:
		size := 4
		if ipv6 {
			size = 16
		}
		flags, port = binary.NativeEndian.Uint32(info), info[36:38]
		address, _ = netip.AddrFromSlice(info[4 : 4+size])
	default:
		return "", false
	}
	number := binary.BigEndian.Uint16(port)
	switch flags & (natMapsAddress | natMapsPort) {
	case natMapsAddress | natMapsPort:
		return netip.AddrPortFrom(address, number).String(), true
	case natMapsAddress:
		return address.String(), true
	case natMapsPort:
		return fmt.Sprintf(":%d", number), true
	default:
		return "", false
	}
}
