package cluster_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nativeScript prints what the native tools know of a node, each part under its name. Those that load modules by being called
// are called only where these are loaded.
const nativeScript = `
part() { echo "==> $1"; }
loaded() { grep -qs . /proc/net/$1; }
IP=/usr/sbin/ip; [ -e $IP ] || IP=/usr/bin/ip; [ -e $IP ] || IP=/sbin/ip
part ipvs; [ -e /proc/net/ip_vs ] && ipvsadm -Sn
part ipset; ipset save
part address; $IP -o address show
part route; $IP route show table local; $IP -6 route show table local; $IP route show; $IP -6 route show
part nft4; iptables-nft-save
part nft6; ip6tables-nft-save
part legacy4; loaded ip_tables_names && iptables-legacy-save
part legacy6; loaded ip6_tables_names && ip6tables-legacy-save
part native4; nft -s list table ip kube-proxy 2>/dev/null
part native6; nft -s list table ip6 kube-proxy 2>/dev/null
part sysctl; cd /proc/sys/net/ipv4; grep -s . vs/conntrack vs/expire_nodest_conn vs/expire_quiescent_template conf/all/arp_ignore conf/all/arp_announce conf/all/route_localnet ip_forward
true
`

// native is what the native tools print, part by part: counters, dates and lifetimes are left out.
type native map[string]string

// passing is what changes without anybody's doing; a link that is made again has another number.
var passing = regexp.MustCompile(`(?m)^#.*\n|^\d+: |\[\d+:\d+\]|\\? +valid_lft .*$| expires \d+sec`)

func (l *live) native(t *testing.T) native {
	t.Helper()
	result, err := l.node.RunInput(t.Context(), []byte(nativeScript), "sh")
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("asking the native tools: %v, exit status %d: %s", err, result.ExitCode, result.Stderr)
	}
	seen := native{}
	for _, part := range strings.Split("\n"+result.Stdout, "\n==> ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		if text != "" {
			text += "\n"
		}
		seen[name] = passing.ReplaceAllString(text, "")
	}
	// The kernel lists these by hash, or in the order of their making.
	for _, name := range []string{"ipvs", "ipset", "route", "address"} {
		seen[name] = sorted(seen[name])
	}
	return seen
}

func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// mustEqual fails the test where any part but those left out differs.
func (n native) mustEqual(t *testing.T, what string, before native, leftOut ...string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if diff := cmp.Diff(before[name], n[name]); diff != "" && !slices.Contains(leftOut, name) {
			t.Errorf("%s: %s before (-) and after (+):\n%s", what, name, diff)
		}
	}
}

// elements cuts a table of nftables into its words, for kube-proxy writes maps in any order.
var elements = strings.NewReplacer("elements = {", "\n", ", ", "\n", ",\n", "\n", " }\n", "\n}\n")

// loose is native without the order that a kube-proxy chooses anew at each start.
func (n native) loose() native {
	rest := native{}
	for name, text := range n {
		var lines []string
		for line := range strings.Lines(elements.Replace(text)) {
			lines = append(lines, strings.TrimSpace(line)+"\n")
		}
		slices.Sort(lines)
		rest[name] = strings.Join(lines, "")
	}
	return rest
}

// removed are the lines that are there before and not after; lines that are only there after fail the test.
func (n native) removed(t *testing.T, after native, name string) []string {
	t.Helper()
	count := map[string]int{}
	for line := range strings.Lines(n[name]) {
		count[line]++
	}
	for line := range strings.Lines(after[name]) {
		if count[line]--; count[line] < 0 {
			t.Errorf("%s: %q was not there before", name, line)
		}
	}
	var gone []string
	for line, times := range count {
		if times > 0 {
			gone = append(gone, strings.TrimSpace(line))
		}
	}
	return gone
}
