package trace

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// traces is what looking must not change, by the command that tells it.
type traces map[string]string

// fileTraces are told by files alone, so that asking for them changes nothing itself.
func fileTraces() []string {
	return []string{
		"cat /proc/modules 2>/dev/null || echo none",
		"ls /sys/module",
		"cat /proc/net/ip_tables_names || echo absent",
		"cat /proc/net/ip6_tables_names || echo absent",
		"cat /proc/net/arp_tables_names || echo absent",
		// What a module would bring.
		"find /proc/sys/net | sort",
		"ls /proc/net /proc/net/netfilter | sort",
		"ls /sys/class/net",
	}
}

// toolTraces are told by native tools, which load what they ask for: only where all of it is there already.
func toolTraces(ipvs bool) []string {
	tools := []string{
		"nft -a list ruleset",
		"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save",
		"ipset save", "ip -d address", "ip route show table all", "ip -6 route show table all", "ip rule",
	}
	if ipvs {
		tools = append(tools, "ipvsadm -Sn", "cat /proc/net/ip_vs")
	}
	return tools
}

// look takes the traces as they are now, in one go.
func look(t *testing.T, m machine, commands []string) traces {
	t.Helper()
	const mark = "@@@@"
	var all strings.Builder
	for _, command := range commands {
		_, _ = fmt.Fprintf(&all, "echo %s; %s\n", mark, command)
	}
	said := strings.Split(m.run(t, "", "sh", "-c", all.String()).Stdout, mark+"\n")
	if len(said) != len(commands)+1 {
		t.Fatalf("%d commands gave %d answers", len(commands), len(said)-1)
	}
	seen := traces{}
	for i, command := range commands {
		seen[command] = withoutMoving(said[i+1])
	}
	return seen
}

// settled takes the traces once they stand still: kernels give a module that was used back a moment later.
func settled(t *testing.T, m machine, commands []string) traces {
	t.Helper()
	before := look(t, m, commands)
	for range 5 {
		after := look(t, m, commands)
		if maps.Equal(before, after) {
			return after
		}
		before = after
		time.Sleep(time.Second)
	}
	t.Fatal("what the native tools say does not stand still")
	return nil
}

// withoutMoving drops what moves by itself: comments with the time of day, how long an address is valid, and what
// counts packets (the agent asks kube-proxy's ports on loopback).
func withoutMoving(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "valid_lft") {
			kept.WriteString(packets().ReplaceAllString(strings.TrimRight(line, "\n"), "") + "\n")
		}
	}
	return kept.String()
}

var packets = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`counter packets [0-9]+ bytes [0-9]+ ?|\[[0-9]+:[0-9]+\]$`)
})

// same holds that two looks saw the same.
func same(t *testing.T, what string, before, after traces) {
	t.Helper()
	for command, text := range before {
		if after[command] != text {
			t.Errorf("%s changed what `%s` says:%s", what, command, difference(text, after[command]))
		}
	}
}

func difference(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	var lines strings.Builder
	for _, line := range was {
		if !slices.Contains(is, line) {
			_, _ = fmt.Fprintf(&lines, "\n- %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			_, _ = fmt.Fprintf(&lines, "\n+ %s", line)
		}
	}
	return lines.String()
}

// looks are the ways to look at a node once.
func looks() [][]string {
	return [][]string{
		{"inspect"}, {"inspect", "-o", "json"}, {"inspect", "--target", "iptables", "-o", "yaml"},
		{"verify", "--target", "nftables"}, {"verify", "--target", "none"}, {"verify", "--target", "iptables", "-o", "json"},
	}
}

// leavesNoTrace looks in every way and holds that the files are the same after each of them, and what the tools say after
// all of them.
func leavesNoTrace(t *testing.T, m machine, tools []string) {
	t.Helper()
	all := append(fileTraces(), tools...)
	before := settled(t, m, all)
	files := maps.Clone(before)
	maps.DeleteFunc(files, func(command, _ string) bool { return slices.Contains(tools, command) })
	for _, args := range looks() {
		result := m.run(t, "", append([]string{m.agent()}, args...)...)
		if args[0] == "inspect" && result.ExitCode != 0 || result.ExitCode == 1 {
			t.Errorf("offramp-agent %v ends with %d: %s", args, result.ExitCode, result.Stderr)
		}
		same(t, "offramp-agent "+strings.Join(args, " "), files, look(t, m, fileTraces()))
	}
	same(t, "looking", before, look(t, m, all))
}
