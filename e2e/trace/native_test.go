package trace

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// counts are all figures of a node, by what is counted.
type counts map[string]uint64

// agreesWithNative holds that what inspect says of a guest is what the native tools say of it.
func agreesWithNative(t *testing.T, m machine) {
	t.Helper()
	var native counts
	var node *offrampv1.GetNodeResponse
	// A link's own IPv6 address comes when it likes: what counts is a moment in which nothing moved.
	for range 5 {
		native = nativeCounts(t, m)
		node = inspect(t, m)
		if maps.Equal(native, nativeCounts(t, m)) {
			break
		}
	}
	says(t, node, nativeStates(t, m))
	if diff := cmp.Diff(native, said(t, node)); diff != "" {
		t.Errorf("native tools (-) and inspect (+):\n%s", diff)
	}
	sysctlsAgree(t, m, section(t, node, sysctls).GetStable().GetSysctls())
}

// said is what inspect says.
func said(t *testing.T, node *offrampv1.GetNodeResponse) counts {
	t.Helper()
	all := counts{}
	table := section(t, node, ipvs).GetStable().GetIpvs()
	all.add("virtual servers", table.GetVirtualServers())
	all.add("real servers", table.GetRealServers())
	all.add("real servers of weight 0", table.GetRealServersWeightZero())
	for _, scheduler := range table.GetSchedulers() {
		all.add("virtual servers by "+scheduler.GetScheduler(), scheduler.GetVirtualServers())
	}
	on := section(t, node, link).GetStable().GetIpvsLink()
	all.add("IPv4 addresses of kube-ipvs0", on.GetIpv4Addresses())
	all.add("IPv6 addresses of kube-ipvs0", on.GetIpv6Addresses())
	all.add("addresses of the node", section(t, node, addresses).GetStable().GetAddresses().GetCount())
	sets := section(t, node, ipsets).GetStable().GetIpsets()
	all.add("sets", sets.GetSets())
	all.add("entries of sets", sets.GetEntries())
	for _, set := range sets.GetSamples() {
		all.add("entries of "+set.GetName()+" "+set.GetType(), set.GetEntries())
	}
	for kind, tool := range iptablesTools() {
		for _, table := range section(t, node, kind).GetStable().GetIptables().GetTables() {
			all.add(tool+" "+table.GetName()+" chains", table.GetChains())
			all.add(tool+" "+table.GetName()+" rules", table.GetRules())
		}
	}
	tables := section(t, node, nftables).GetStable().GetNftables()
	all.add("nftables tables", tables.GetTables())
	for _, table := range tables.GetSamples() {
		name := "table " + table.GetFamily() + " " + table.GetName()
		all.add(name+" chains", table.GetChains())
		all.add(name+" sets and maps", table.GetSets())
		all.add(name+" rules", table.GetRules())
	}
	return all
}

// add leaves out what is nothing: absent and empty are told apart by states.
func (c counts) add(what string, n uint64) {
	if n > 0 {
		c[what] += n
	}
}

func iptablesTools() map[offrampv1.SectionKind]string {
	return map[offrampv1.SectionKind]string{
		nftIPv4: "iptables-nft", nftIPv6: "ip6tables-nft", legacyIPv4: "iptables-legacy", legacyIPv6: "ip6tables-legacy",
	}
}

// nativeCounts asks the native tools, for what is loaded.
func nativeCounts(t *testing.T, m machine) counts {
	t.Helper()
	all, is := counts{}, nativeStates(t, m)
	if is[ipvs] != absent {
		all.servers(output(t, m, "ipvsadm", "-Sn"))
	}
	if is[ipsets] != absent {
		all.sets(output(t, m, "ipset", "save"))
	}
	for kind, tool := range iptablesTools() {
		if is[kind] != absent {
			all.chains(tool, output(t, m, tool+"-save"))
		}
	}
	if is[nftables] != absent {
		all.tables(t, m)
	}
	all.addresses(output(t, m, "ip", "-o", "address"))
	return all
}

func (c counts) servers(saved string) {
	for line := range strings.Lines(saved) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "-A":
			c.add("virtual servers", 1)
			c.add("virtual servers by "+after(fields, "-s"), 1)
		case "-a":
			c.add("real servers", 1)
			if after(fields, "-w") == "0" {
				c.add("real servers of weight 0", 1)
			}
		}
	}
}

// after is the word after another one.
func after(fields []string, flag string) string {
	if i := slices.Index(fields, flag); i >= 0 && i+1 < len(fields) {
		return fields[i+1]
	}
	return ""
}

func (c counts) sets(saved string) {
	types := map[string]string{}
	for line := range strings.Lines(saved) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "create":
			types[fields[1]] = fields[2]
			c.add("sets", 1)
		case "add":
			c.add("entries of sets", 1)
			c.add("entries of "+fields[1]+" "+types[fields[1]], 1)
		}
	}
}

func (c counts) chains(tool, saved string) {
	table := ""
	for line := range strings.Lines(saved) {
		switch line[0] {
		case '*':
			table = strings.TrimSpace(line[1:])
		case ':':
			c.add(tool+" "+table+" chains", 1)
		case '-':
			c.add(tool+" "+table+" rules", 1)
		}
	}
}

// splitTables lists the tables, as "FAMILY NAME", that are not iptables-nft's, and counts those in either family.
func splitTables(t *testing.T, m machine) (native []string, ip, ip6 int) {
	t.Helper()
	for line := range strings.Lines(output(t, m, "nft", "list", "tables")) {
		fields := strings.Fields(line)
		iptables := slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, fields[2])
		switch {
		case iptables && fields[1] == "ip":
			ip++
		case iptables && fields[1] == "ip6":
			ip6++
		default:
			native = append(native, fields[1]+" "+fields[2])
		}
	}
	return native, ip, ip6
}

func (c counts) tables(t *testing.T, m machine) {
	t.Helper()
	native, _, _ := splitTables(t, m)
	for _, table := range native {
		c.add("nftables tables", 1)
		listed := output(t, m, append([]string{"nft", "-a", "list", "table"}, strings.Fields(table)...)...)
		for line := range strings.Lines(listed) {
			// With -a every object ends in its handle; elements of maps and sets have none.
			words, handle, found := strings.Cut(strings.TrimSpace(line), " # handle ")
			switch {
			case !found || handle == "" || strings.HasPrefix(words, "table "):
			case strings.HasPrefix(words, "chain "):
				c.add("table "+table+" chains", 1)
			case strings.HasPrefix(words, "set "), strings.HasPrefix(words, "map "):
				c.add("table "+table+" sets and maps", 1)
			default:
				c.add("table "+table+" rules", 1)
			}
		}
	}
}

func (c counts) addresses(shown string) {
	for line := range strings.Lines(shown) {
		fields := strings.Fields(line)
		address, err := netip.ParsePrefix(fields[3])
		if err != nil {
			continue
		}
		switch name := fields[1]; {
		case name == "lo":
		case name != "kube-ipvs0":
			c.add("addresses of the node", 1)
		case address.Addr().Is4():
			c.add("IPv4 addresses of kube-ipvs0", 1)
		default:
			c.add("IPv6 addresses of kube-ipvs0", 1)
		}
	}
}

// sysctlsAgree reads each parameter again by hand.
func sysctlsAgree(t *testing.T, m machine, facts *offrampv1.SysctlsFacts) {
	t.Helper()
	for _, sysctl := range facts.GetValues() {
		native := m.run(t, "", "cat", "/proc/sys/"+sysctl.GetPath())
		if there := native.ExitCode == 0; there != (sysctl.GetState() == present) || strings.TrimSpace(native.Stdout) != sysctl.GetValue() {
			t.Errorf("%s is %v with %q, natively %q (%s)", sysctl.GetPath(), sysctl.GetState(), sysctl.GetValue(), native.Stdout, native.Stderr)
		}
	}
}
