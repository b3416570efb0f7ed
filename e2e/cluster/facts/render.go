package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"offramp.dev/offramp/e2e/cluster"
)

const head = `# What kube-proxy leaves on a node

Made by a run of ` + "`%s`" + `; not edited by hand. In each row a real kube-proxy, against a real API server
with one Service of every kind, took a node from one state to another. Counts are those of ipvsadm, ipset,
iptables-save of both backends, ip and nft on that node before -> after; one number means that nothing changed.

- servers: virtual servers of IPVS, whoever made them
- sets: ipsets KUBE-* / KUBE-6-* (entries of both)
- link: addresses on kube-ipvs0, or none where the link is not there
- nft, legacy: iptables rules that name a KUBE-* chain, IPv4 / IPv6, without those that kubelet makes too
- tables: nftables' own tables kube-proxy
- sysctls: those that are not what they were before any kube-proxy

`

const tableHead = `| transition | kube-proxy | kernel | servers | sets | link | nft | legacy | tables | sysctls after |
|---|---|---|---|---|---|---|---|---|---|
`

// Render writes rows as a page. what is the command that made them.
func Render(rows []Row, what string) string {
	var page strings.Builder
	fmt.Fprintf(&page, head, what)
	page.WriteString(Table(rows))
	page.WriteString("\n## Seen beside the counts\n")
	for _, r := range rows {
		if len(r.Errors)+len(r.Notes) == 0 {
			continue
		}
		fmt.Fprintf(&page, "\n**%s** (%s, kernel %s, %s)\n\n", r.Transition, r.Proxy, r.Kernel, r.Backend)
		for _, note := range r.Notes {
			fmt.Fprintf(&page, "- %s\n", note)
		}
		for _, line := range r.Errors {
			fmt.Fprintf(&page, "- log: %s\n", line)
		}
	}
	return page.String()
}

// Table is the page's table alone.
func Table(rows []Row) string {
	var table strings.Builder
	table.WriteString(tableHead)
	for _, r := range rows {
		cells := []string{
			r.Transition, r.Proxy, r.Kernel, change(r, servers), change(r, sets), change(r, link),
			change(r, func(s cluster.State) string { return rules(s.NFT) }),
			change(r, func(s cluster.State) string { return rules(s.Legacy) }), change(r, tables), sysctls(r.After),
		}
		fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | "))
	}
	return table.String()
}

// change is a value before and after, or once where it stayed the same.
func change(r Row, of func(cluster.State) string) string {
	before, after := of(r.Before), of(r.After)
	if before == after {
		return before
	}
	return before + " -> " + after
}

func servers(s cluster.State) string { return fmt.Sprint(s.VirtualServers) }

func sets(s cluster.State) string {
	if s.Sets4+s.Sets6 == 0 {
		return "0"
	}
	return fmt.Sprintf("%d / %d (%d)", s.Sets4, s.Sets6, s.Entries4+s.Entries6)
}

func link(s cluster.State) string {
	if !s.Link {
		return "none"
	}
	return fmt.Sprint(s.Addresses)
}

func rules(r cluster.Rules) string { return fmt.Sprintf("%d / %d", r.Rules4, r.Rules6) }

func tables(s cluster.State) string {
	if len(s.Tables) == 0 {
		return "none"
	}
	return strings.Join(s.Tables, ", ")
}

// usual are values of a kernel, by sysctl, that no kube-proxy has touched; ip_forward is 1 on every node.
func usual() map[string]string {
	return map[string]string{
		"ip_forward": "1", "vs/conntrack": "0", "vs/conn_reuse_mode": "1", "vs/expire_nodest_conn": "0",
		"vs/expire_quiescent_template": "0", "conf/all/arp_ignore": "0", "conf/all/arp_announce": "0", "conf/all/route_localnet": "0",
	}
}

func sysctls(s cluster.State) string {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(s.Sysctls)) {
		if s.Sysctls[name] != usual()[name] {
			changed = append(changed, name+"="+s.Sysctls[name])
		}
	}
	return strings.Join(changed, " ")
}
