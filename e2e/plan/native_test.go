package plan_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/lab"
)

// natives is what the native tools print of a node, by what was asked. What moves by itself (counters, times, hash sizes,
// numbers of links) is left out, and what the kernel lists by a hash is sorted; the order of rules is kept.
type natives map[string]string

// nativeCommands is how each part is asked for. The tools load what they ask for: only where that does not matter.
func nativeCommands() map[string]string {
	return map[string]string{
		"iptables-nft": "iptables-nft-save", "ip6tables-nft": "ip6tables-nft-save",
		"iptables-legacy": "iptables-legacy-save", "ip6tables-legacy": "ip6tables-legacy-save",
		"nft": "nft -s list ruleset", "ipset": "ipset save", "ipvsadm": "ipvsadm -Sn", "nfacct": "nfacct list",
		"addresses": "ip -o address", "routes": "ip route show table all; ip -6 route show table all",
		"sysctls": "grep . /proc/sys/net/ipv4/vs/* /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/all/arp_* /proc/sys/net/ipv4/conf/all/route_localnet",
	}
}

// lookNative asks for everything in one go.
func lookNative(t *testing.T, g *lab.Guest) natives {
	t.Helper()
	const mark = "@@@@"
	var script strings.Builder
	var asked []string
	for what, command := range nativeCommands() {
		asked = append(asked, what)
		fmt.Fprintf(&script, "echo %s; %s 2>/dev/null || echo failed: %s\n", mark, command, what)
	}
	said := strings.Split(output(t, g, script.String()), mark+"\n")
	if len(said) != len(asked)+1 {
		t.Fatalf("%d questions, %d answers", len(asked), len(said)-1)
	}
	seen := natives{}
	for i, what := range asked {
		if strings.Contains(said[i+1], "failed: "+what) {
			t.Fatalf("%s: %s", nativeCommands()[what], said[i+1])
		}
		seen[what] = steady(what, said[i+1])
	}
	return seen
}

// steady leaves out of a tool's output what moves by itself.
func steady(what, text string) string {
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	switch what {
	case "ipset":
		text = regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(text, "")
		return strings.Join(slices.Sorted(slices.Values(cut(text, "create "))), "")
	case "ipvsadm":
		return strings.Join(slices.Sorted(slices.Values(cut(text, "-A "))), "")
	case "nft":
		return sortedElements(nativeTables(text))
	case "nfacct":
		text = regexp.MustCompile(`pkts = \d+, bytes = \d+`).ReplaceAllString(text, "")
		return strings.Join(slices.Sorted(strings.Lines(text)), "")
	case "addresses":
		text = regexp.MustCompile(`(?m)^\d+: | tentative|\\? +valid_lft.*$`).ReplaceAllString(text, "")
		return strings.Join(slices.Sorted(strings.Lines(text)), "")
	case "routes":
		return strings.Join(slices.Sorted(strings.Lines(text)), "")
	default:
		return regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(text, "[0:0]")
	}
}

// cut cuts a text before each line that begins with head, and sorts the lines that follow it.
func cut(text, head string) []string {
	var all [][]string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, head) || len(all) == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], line)
	}
	joined := make([]string, 0, len(all))
	for _, group := range all {
		slices.Sort(group[1:])
		joined = append(joined, strings.Join(group, ""))
	}
	return joined
}

// nativeTables leaves out the tables that iptables-nft keeps: nft does not show its matches, iptables-nft-save does.
func nativeTables(ruleset string) string {
	tables := slices.DeleteFunc(tablesOf(ruleset), func(table string) bool {
		return regexp.MustCompile(`^table ip6? (nat|filter|mangle|raw|security) \{`).MatchString(table)
	})
	slices.Sort(tables)
	return strings.Join(tables, "")
}

func tablesOf(ruleset string) []string {
	var tables []string
	for line := range strings.Lines(ruleset) {
		if strings.HasPrefix(line, "table ") {
			tables = append(tables, "")
		}
		if len(tables) > 0 {
			tables[len(tables)-1] += line
		}
	}
	return tables
}

// sortedElements sorts the elements of each set and map.
func sortedElements(ruleset string) string {
	return regexp.MustCompile(`(?s)elements = \{([^}]*)\}`).ReplaceAllStringFunc(ruleset, func(found string) string {
		inside := strings.TrimSuffix(strings.TrimPrefix(found, "elements = {"), "}")
		elements := strings.Split(strings.Join(strings.Fields(inside), " "), ",")
		for i := range elements {
			elements[i] = strings.TrimSpace(elements[i])
		}
		slices.Sort(elements)
		return "elements = { " + strings.Join(elements, ", ") + " }"
	})
}

// sameNatives holds that two looks saw the same.
func sameNatives(t *testing.T, what string, want, got natives) {
	t.Helper()
	for part := range want {
		if diff := cmp.Diff(strings.Split(want[part], "\n"), strings.Split(got[part], "\n")); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%.4000s", what, nativeCommands()[part], diff)
		}
	}
}
