package deploy

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/cluster"
)

// recorded is a node of iptables-legacy that went from ipvs mode to iptables mode.
const recorded = "1.37.2-legacy-ipvs-then-iptables"

// foreign is what somebody else has on the node.
const foreign = `ipset create MY-OWN hash:ip
ipset add MY-OWN 192.0.2.1
iptables-nft -t nat -N MINE
iptables-nft -t nat -A MINE -d 192.0.2.1 -j RETURN
iptables-legacy -t filter -N MINE
iptables-legacy -t filter -A MINE -m set --match-set MY-OWN src -j DROP
`

// makeDirty gives a node what two kube-proxies left that were there before the one that runs: a real one in iptables mode, with
// the nft backend; and one of the legacy backend that had been in ipvs mode, as far as a node without ip_vs can have that.
func (s *stage) makeDirty(name string) {
	s.Helper()
	n := s.Nodes[name]
	if err := s.Proxies[name].End(); err != nil {
		s.Fatal(err)
	}
	old, err := n.SyncedProxy(s.whole.Context(), cluster.ProxyConfig{Mode: "iptables"})
	if err != nil {
		s.Fatal(err)
	}
	if err := old.End(); err != nil {
		s.Fatal(err)
	}
	s.feed(name, s.captured("nfacct.txt"), "sh", "-c", `while read -r line; do for w in $line; do :; done; nfacct add "${w%;}" || true; done`)
	s.feed(name, s.captured("ipset-save.txt"), "ipset", "restore")
	s.feed(name, s.captured("iptables-legacy-save.txt"), "iptables-legacy-restore", "--noflush")
	s.feed(name, s.captured("ip6tables-legacy-save.txt"), "ip6tables-legacy-restore", "--noflush")
	s.Proxies[name], err = n.SyncedProxy(s.whole.Context(), cluster.ProxyConfig{Mode: "nftables", Without: []string{"iptables", "ip6tables"}})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) captured(file string) string {
	s.Helper()
	content, err := captures.Read(recorded, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	return string(content)
}

func (s *stage) feed(node, input string, argv ...string) {
	s.Helper()
	result, err := s.Nodes[node].RunInput(s.Context(), []byte(input), argv...)
	if err != nil || result.ExitCode != 0 {
		s.Fatalf("on %s %v: %v, exit status %d: %s", node, argv, err, result.ExitCode, result.Stderr)
	}
}

// nativeScript prints what the native tools know of a node, each line with the tool's name.
const nativeScript = `
each() { name=$1; shift; "$@" | sed "s/^/$name /"; }
each ipset ipset save
each nft4 iptables-nft-save
each nft6 ip6tables-nft-save
each legacy4 iptables-legacy-save
each legacy6 ip6tables-legacy-save
each native4 nft -s list table ip kube-proxy
each native6 nft -s list table ip6 kube-proxy
each address ip -o address
each sysctl grep -s . /proc/sys/net/ipv4/conf/all/route_localnet /proc/sys/net/ipv4/ip_forward
true
`

var passing = regexp.MustCompile(`\[\d+:\d+\]| +valid_lft .*$`)

// native are the lines that the native tools print of the dirty node, but for counters and what stands alone.
func (s *stage) native() []string {
	s.Helper()
	result, err := s.Nodes[dirty].RunInput(s.Context(), []byte(nativeScript), "sh")
	if err != nil || result.ExitCode != 0 {
		s.Fatalf("asking the native tools: %v: %s", err, result.Stderr)
	}
	var lines []string
	for line := range strings.Lines(result.Stdout) {
		line = strings.TrimSpace(passing.ReplaceAllString(line, ""))
		if !strings.Contains(line, " # ") && !strings.HasSuffix(line, " COMMIT") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// difference are the lines of a that b lacks.
func difference(a, b []string) []string {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	var only []string
	for _, line := range a {
		if count[line]--; count[line] < 0 {
			only = append(only, line)
		}
	}
	return only
}

// ofOldModes are names that kube-proxy has in ipvs and iptables mode, and in nothing else. KUBE-FIREWALL and the canary of
// kubelet are not among them.
var ofOldModes = regexp.MustCompile(`KUBE-(SVC|SVL|FW|EXT|SEP)-[A-Z2-7]{16}\b|KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|NODE-PORT[A-Z-]*|POSTROUTING|MARK-MASQ|FORWARD|` +
	`PROXY-FIREWALL|PROXY-CANARY|IPVS-[A-Z-]*|SOURCE-RANGES-FIREWALL|LOAD-BALANCER[A-Z-]*|CLUSTER-IP|LOOP-BACK|EXTERNAL-IP[A-Z-]*|HEALTH-CHECK-NODE-PORT|6-[A-Z-]*)\b`)

// soon is what the cluster may take to show a change.
const soon = 90 * time.Second
