package cleanup_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/nstest"
)

// backends are the native tools of iptables, with the file of a capture that each takes.
func backends() []struct{ tool, capture string } {
	return []struct{ tool, capture string }{
		{"iptables-nft", "iptables-nft-save.txt"},
		{"ip6tables-nft", "ip6tables-nft-save.txt"},
		{"iptables-legacy", "iptables-nft-save.txt"},
		{"ip6tables-legacy", "ip6tables-nft-save.txt"},
	}
}

func needNetfilter(t *testing.T) {
	t.Helper()
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore", "ipset", "nft")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables", "ip_set")
}

// zoo makes what others have in every table: names that look like kube-proxy's, and jumps between kube-proxy's places.
func zoo(t *testing.T) {
	t.Helper()
	for _, backend := range backends() {
		address := map[bool]string{false: "192.0.2.7/32", true: "2001:db8::7/128"}[strings.HasPrefix(backend.tool, "ip6")]
		run(t, strings.ReplaceAll(zooRules, "ADDRESS", address), backend.tool+"-restore", "--noflush")
	}
	run(t, zooSets, "ipset", "restore")
	run(t, zooTables, "nft", "-f", "-")
}

const zooRules = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:cali-PREROUTING - [0:0]
:KUBE-HOSTPORTS - [0:0]
:KUBE-SVC-abc - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNOPQ - [0:0]
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -m comment --comment "kube hostport portals" -j KUBE-HOSTPORTS
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
-A KUBE-SVC-abc -s ADDRESS -j RETURN
-A POSTROUTING -s ADDRESS -j MASQUERADE
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
:KUBE-NWPLCY-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-NODE-PORTS - [0:0]
:DOCKER-USER - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m comment --comment "kube-router netpol" -j KUBE-ROUTER-INPUT
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORTS
-A FORWARD -j DOCKER-USER
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -d ADDRESS -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBE-ROUTER-INPUT -s ADDRESS -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
`

const zooSets = `create KUBE-SRC-ABCDEFGHIJKLMNOP hash:ip family inet hashsize 1024 maxelem 65536
add KUBE-SRC-ABCDEFGHIJKLMNOP 192.0.2.7
create KUBE-CLUSTER-IPS hash:ip family inet hashsize 1024 maxelem 65536
create inet6:KUBE-DST-ABCDEFGHIJ hash:ip family inet6 hashsize 1024 maxelem 65536
create cali40all-ipam-pools hash:net family inet hashsize 1024 maxelem 65536
`

const zooTables = `
table inet kube-proxy {
	chain services {
		counter
	}
}
table ip kube-proxy-mine {
	chain a {
		type filter hook input priority 0;
		counter
	}
}
table inet firewalld {
	set s {
		type ipv4_addr
		elements = { 192.0.2.9 }
	}
	chain filter_INPUT {
		type filter hook input priority 10;
		ip saddr @s drop
	}
}
`

// kubeProxy puts the state of a capture beside what is there, into both backends.
func kubeProxy(t *testing.T, capture string) {
	t.Helper()
	kubeProxyIn(t, capture, "nft", "legacy")
}

// kubeProxyIn is kubeProxy with its rules in some backends.
func kubeProxyIn(t *testing.T, capture string, in ...string) {
	t.Helper()
	if sets := fileOf(t, capture, "ipset-save.txt"); sets != "" {
		// bucketsize and initval are unknown to 5.10.
		run(t, regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(sets, ""), "ipset", "restore")
	}
	if tables := nativeTables(fileOf(t, capture, "nft-ruleset.txt")); tables != "" {
		run(t, tables, "nft", "-f", "-")
	}
	for _, backend := range backends() {
		if _, name, _ := strings.Cut(backend.tool, "-"); !slices.Contains(in, name) {
			continue
		}
		// In their order, as kube-proxy itself inserts jumps at the top: reversed, each becomes an insertion.
		run(t, kubeProxyRules(fileOf(t, capture, backend.capture)), backend.tool+"-restore", "--noflush")
	}
}

// nativeTables are kube-proxy's own tables in a saved ruleset of nft.
func nativeTables(saved string) string {
	var kept strings.Builder
	inside := false
	for line := range strings.Lines(saved) {
		inside = inside || line == "table ip kube-proxy {\n" || line == "table ip6 kube-proxy {\n"
		if inside {
			kept.WriteString(line)
		}
		inside = inside && line != "}\n"
	}
	return kept.String()
}

// kubeProxyRules leaves out of a saved ruleset what kubelet and the zoo have, and what this kernel may lack. Jumps from
// built-in chains go to their top.
func kubeProxyRules(saved string) string {
	var kept strings.Builder
	top := []string{}
	for line := range strings.Lines(saved) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"), strings.Contains(line, "KUBE-FIREWALL"), strings.Contains(line, "KUBELET-CANARY"), strings.Contains(line, "IPTABLES-HINT"):
		case strings.Contains(line, " -m ipvs "), strings.Contains(line, " -m nfacct "), strings.Contains(line, " -m physdev "):
		case strings.HasPrefix(line, ":") && fields[1] != "-":
		case line == "COMMIT\n":
			for i := len(top) - 1; i >= 0; i-- {
				kept.WriteString(top[i])
			}
			top = top[:0]
			kept.WriteString(line)
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(fields[1], "KUBE-"):
			top = append(top, "-I"+strings.TrimPrefix(line, "-A"))
		default:
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// look is everything that the native tools print, counters and times aside.
func look(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, backend := range backends() {
		all.WriteString("## " + backend.tool + "\n" + run(t, "", backend.tool+"-save"))
	}
	all.WriteString("## ipset\n" + members(run(t, "", "ipset", "save")))
	for _, table := range []string{"inet kube-proxy", "ip kube-proxy-mine", "inet firewalld"} {
		all.WriteString("## nft " + table + "\n" + run(t, "", append([]string{"nft", "-s", "list", "table"}, strings.Fields(table)...)...))
	}
	all.WriteString("## nft tables\n" + run(t, "", "nft", "list", "tables"))
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		all.WriteString("## ipvsadm\n" + sorted(run(t, "", "ipvsadm", "-Sn")))
	}
	for _, family := range []string{"-4", "-6"} {
		all.WriteString("## routes\n" + run(t, "", "ip", family, "-d", "route", "show", "table", "local"))
	}
	all.WriteString("## addresses\n" + withoutIndex(run(t, "", "ip", "-o", "addr")))
	text := regexp.MustCompile(`(?m)^#.*(Generated|Completed|Warning).*\n`).ReplaceAllString(all.String(), "")
	text = regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(text, "[0:0]")
	return regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(text, "")
}

// sorted sorts virtual servers, each with its real servers: the kernel lists them by hash.
func sorted(saved string) string {
	servers := groups(saved, "-A")
	slices.Sort(servers)
	return strings.Join(servers, "")
}

// members sorts the members of each set: the kernel lists them by a hash that begins anew with the set.
func members(saved string) string { return strings.Join(groups(saved, "create"), "") }

// groups cuts a text before each line that begins with head, and sorts the lines that follow it.
func groups(text, head string) []string {
	var all [][]string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, head) || len(all) == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], line)
	}
	var joined []string
	for _, group := range all {
		slices.Sort(group[1:])
		joined = append(joined, strings.Join(group, ""))
	}
	return joined
}

// withoutIndex leaves out the number of each link: one that is made anew has another.
func withoutIndex(addresses string) string {
	return regexp.MustCompile(`(?m)^\d+: `).ReplaceAllString(addresses, "")
}
