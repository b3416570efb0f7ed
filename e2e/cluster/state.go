package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// State is what native tools find of kube-proxy on a node.
type State struct {
	// VirtualServers and RealServers count IPVS, whoever made them.
	VirtualServers, RealServers int
	// Sets4 and Sets6 count the ipsets KUBE-* and KUBE-6-*, Entries4 and Entries6 what is in them.
	Sets4, Sets6, Entries4, Entries6 int
	// Link says whether kube-ipvs0 is there, Addresses counts what is on it.
	Link      bool
	Addresses int
	// NFT and Legacy are the rules of the two backends of iptables.
	NFT, Legacy Rules
	// Tables are nftables' own tables kube-proxy, as "ip kube-proxy".
	Tables []string
	// Sysctls are those that ipvs and iptables mode set, by path below /proc/sys/net/ipv4; missing where the kernel has none.
	Sysctls map[string]string
}

// Rules counts chains and rules of kube-proxy's in one backend of iptables: all of KUBE-*, without what kubelet makes.
type Rules struct{ Chains4, Rules4, Chains6, Rules6 int }

// sysctls are those of facts/kube-proxy.md section 3.
var sysctls = []string{
	"vs/conntrack", "vs/conn_reuse_mode", "vs/expire_nodest_conn", "vs/expire_quiescent_template",
	"conf/all/arp_ignore", "conf/all/arp_announce", "conf/all/route_localnet", "ip_forward",
}

// lookScript prints what the state is made from, each part under its name. ipvsadm and the legacy tools load modules by
// being called, so they are called only where those are loaded already.
const lookScript = `
part() { echo "==> $1"; }
loaded() { grep -qs . /proc/net/$1; } # files there have no size
part ipvsadm; [ -e /proc/net/ip_vs ] && ipvsadm -Sn
part ipset; ipset save
part link; IP=/usr/sbin/ip; [ -e $IP ] || IP=/usr/bin/ip; [ -e /sys/class/net/kube-ipvs0 ] && $IP -o address show dev kube-ipvs0 && echo there
part nft4; iptables-nft-save
part nft6; ip6tables-nft-save
part legacy4; loaded ip_tables_names && iptables-legacy-save
part legacy6; loaded ip6_tables_names && ip6tables-legacy-save
part tables; nft list tables
part sysctls; cd /proc/sys/net/ipv4; grep -s . SYSCTLS
true
`

// Look finds a node's state.
func (n *Node) Look(ctx context.Context) (State, error) {
	text := strings.Replace(lookScript, "SYSCTLS", strings.Join(sysctls, " "), 1)
	result, err := n.RunInput(ctx, []byte(text), "sh")
	if err != nil {
		return State{}, err
	}
	if problems := withoutWarnings(result.Stderr); result.ExitCode != 0 || problems != "" {
		return State{}, fmt.Errorf("looking at %s: exit status %d: %s", n.Name, result.ExitCode, problems)
	}
	return parseState(result.Stdout), nil
}

// withoutWarnings leaves out what iptables says on a node where both of its backends are in use, and what nft says where
// it cannot show one of iptables' rules in its own words.
func withoutWarnings(text string) string {
	var rest []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# Warning: ") && !strings.HasPrefix(line, "XT ") {
			rest = append(rest, line)
		}
	}
	return strings.TrimSpace(strings.Join(rest, ""))
}

func parseState(text string) State {
	parts := parts(text)
	s := State{
		VirtualServers: matches(`(?m)^-A `, parts["ipvsadm"]), RealServers: matches(`(?m)^-a `, parts["ipvsadm"]),
		Sets6: matches(`(?m)^create KUBE-6-`, parts["ipset"]), Entries6: matches(`(?m)^add KUBE-6-`, parts["ipset"]),
		Link: strings.Contains(parts["link"], "there\n"), Addresses: matches(` inet6? `, parts["link"]),
		NFT:     Rules{chains(parts["nft4"]), rules(parts["nft4"]), chains(parts["nft6"]), rules(parts["nft6"])},
		Legacy:  Rules{chains(parts["legacy4"]), rules(parts["legacy4"]), chains(parts["legacy6"]), rules(parts["legacy6"])},
		Sysctls: map[string]string{},
	}
	s.Sets4 = matches(`(?m)^create KUBE-`, parts["ipset"]) - s.Sets6
	s.Entries4 = matches(`(?m)^add KUBE-`, parts["ipset"]) - s.Entries6
	for line := range strings.Lines(parts["tables"]) {
		if table, ok := strings.CutPrefix(strings.TrimSpace(line), "table "); ok && strings.HasSuffix(table, " kube-proxy") {
			s.Tables = append(s.Tables, table)
		}
	}
	for line := range strings.Lines(parts["sysctls"]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		s.Sysctls[name] = value
	}
	return s
}

func matches(pattern, text string) int {
	return len(regexp.MustCompile(pattern).FindAllString(text, -1))
}

// kubelets are chains that kubelet makes too; kube-proxy's iptables mode shares the last.
var kubelets = regexp.MustCompile(`KUBE-(IPTABLES-HINT|KUBELET-CANARY|FIREWALL)\b`)

func chains(saved string) int {
	return linesWith(saved, func(line string) bool { return strings.HasPrefix(line, ":KUBE-") })
}

func rules(saved string) int {
	return linesWith(saved, func(line string) bool { return strings.HasPrefix(line, "-A ") && strings.Contains(line, "KUBE-") })
}

func linesWith(text string, wanted func(string) bool) int {
	count := 0
	for line := range strings.Lines(text) {
		if wanted(line) && !kubelets.MatchString(line) {
			count++
		}
	}
	return count
}
