package collect

import (
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// legacyLayout is where things are in the tables of one family: struct ipt_entry and ip6t_entry, and how they are asked for
// (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h).
type legacyLayout struct {
	family kubeproxy.Family
	kind   offrampv1.SectionKind
	// names is the file below /proc/net that lists the tables of the network namespace.
	names string
	// domain is the socket's, level that of its options.
	domain, level int
	// header is the size of ipt_entry, before the matches.
	header int
	// conditions is how many bytes at its beginning hold addresses, interfaces, protocol, flags: all zero for a rule that
	// has none of them and is no goto.
	conditions int
	// target is where target_offset is; next_offset follows it.
	target int
	// flags is where the flags are; isGoto is the one that tells a goto from a jump.
	flags  int
	isGoto byte
}

func legacyIPv4() legacyLayout {
	return legacyLayout{
		family: kubeproxy.IPv4, kind: offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4,
		names: "ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP,
		header: 112, conditions: 84, target: 88, flags: 82, isGoto: 0x02,
	}
}

func legacyIPv6() legacyLayout {
	return legacyLayout{
		family: kubeproxy.IPv6, kind: offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6,
		names: "ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6,
		header: 168, conditions: 133, target: 140, flags: 131, isGoto: 0x04,
	}
}

const (
	legacyHooks = 5
	// tableNameSize is XT_TABLE_MAXNAMELEN.
	tableNameSize = 32
	// entriesHeader is sizeof(struct ipt_get_entries): a name and a size, aligned for the counters that follow.
	entriesHeader = 40
	// partHeader is the size of xt_entry_match and xt_entry_target: size, name, revision.
	partHeader   = 32
	partName     = 2
	partNameSize = 29
	partRevision = 31
)

// hookNames are the built-in chains by hook number (linux/netfilter.h enum nf_inet_hooks).
func hookNames() [legacyHooks]string {
	return [legacyHooks]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
}
