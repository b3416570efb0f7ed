package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"offramp.dev/offramp/e2e/lab"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// count is one figure of the dirty node, from three sides.
type count struct {
	what    string
	offramp uint64
	// native is what the native tools in that machine say when asked by command; shown is that command in short.
	command string
	shown   string
	native  int
	// want was written down by hand from the capture, seeded objects added.
	want int
}

// 6 chains and 5 jumps a family are ipvs mode's alone (facts of kube-proxy 1.37: chains nat KUBE-NODE-PORT and
// KUBE-LOAD-BALANCER, filter KUBE-NODE-PORT, KUBE-SOURCE-RANGES-FIREWALL, KUBE-IPVS-FILTER and KUBE-IPVS-OUT-FILTER).
const (
	leftChains = 12
	leftJumps  = 10
)

// check compares every count that was shown with the native tools' output in the same machine.
func (s *stage) check(ctx context.Context) error {
	nodes, err := s.list(ctx, offrampv1.Target_TARGET_IPTABLES)
	if err != nil {
		return err
	}
	counts, err := s.counts(ctx, nodes[dirty])
	if err != nil {
		return err
	}
	fmt.Printf("\n%s, counted by Offramp and by the native tools in that machine\n", dirty)
	fmt.Printf("  %-24s %8s %8s %9s  %s\n", "", "offramp", "native", "expected", "native command")
	var wrong []string
	for _, c := range counts {
		fmt.Printf("  %-24s %8d %8d %9d  %s\n", c.what, c.offramp, c.native, c.want, cmp.Or(c.shown, c.command))
		if int(c.offramp) != c.want || c.native != c.want {
			wrong = append(wrong, c.what)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the counts differ: %s", strings.Join(wrong, ", "))
	}
	s.say("every count agrees")
	return nil
}

func (s *stage) counts(ctx context.Context, dirtyNode *offrampv1.NodeSummary) ([]count, error) {
	want := s.origin.left()
	left, all := dirtyNode.GetAssessment().GetLeftovers(), dirtyNode.GetInventory()
	counts := []count{
		{what: "virtual servers", offramp: all.GetVirtualServers(), want: want.servers + 2*s.seeded, command: "ipvsadm -Sn | grep -c ^-A"},
		{what: "  leftover", offramp: left.GetVirtualServers(), want: want.servers + s.seeded, command: "ipvsadm -Sn | grep ^-A | grep -vc ' 10.6.115.'", shown: "ipvsadm -Sn, foreign ones left out"},
		{what: "ipsets", offramp: all.GetIpsets(), want: want.sets + s.seeded, command: "ipset list -n | grep -c ."},
		{what: "  leftover", offramp: left.GetIpsets(), want: want.sets, command: "ipset list -n | grep -c ^KUBE-"},
		{what: "addresses of kube-ipvs0", offramp: left.GetLinkAddresses(), want: want.addresses + s.seeded,
			command: "ip -o addr show dev kube-ipvs0 | grep -c inet", shown: "ip -o addr show dev kube-ipvs0"},
		{what: "leftover chains", offramp: left.GetChains(), want: leftChains,
			command: saves + "grep -Ec '^:KUBE-(NODE-PORT|LOAD-BALANCER|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER) '", shown: "iptables-nft-save, ip6tables-nft-save"},
		{what: "leftover jumps", offramp: left.GetJumps(), want: leftJumps,
			command: saves + `grep -Ec -e '-A (IN|OUT)PUT .*"(kubernetes health check rules|kube-proxy firewall rules|kubernetes ipvs access filter)"' -e '-A FORWARD .*"kube-proxy firewall rules"'`, shown: "iptables-nft-save, ip6tables-nft-save"},
	}
	for i := range counts {
		native, err := countLines(ctx, s.node(dirty).guest, counts[i].command)
		if err != nil {
			return nil, err
		}
		counts[i].native = native
	}
	return counts, nil
}

const saves = "(iptables-nft-save; ip6tables-nft-save) | "

// countLines runs a command line that prints a number.
func countLines(ctx context.Context, guest *lab.Guest, command string) (int, error) {
	// grep -c exits 1 when it counts none, which is an answer.
	result, err := guest.Run(ctx, "busybox", "sh", "-c", command)
	if err != nil {
		return 0, fmt.Errorf("counting with the native tools: %w", err)
	}
	var n int
	if _, err := fmt.Sscan(result.Stdout, &n); err != nil {
		return 0, fmt.Errorf("counting with %q: it printed %q and %q", command, result.Stdout, result.Stderr)
	}
	return n, nil
}
