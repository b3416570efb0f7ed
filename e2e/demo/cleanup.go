package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/lab"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// cleanUp shows the plan for the dirty node, applies it, and shows that what is foreign is as it was.
func (s *stage) cleanUp(ctx context.Context) error {
	guest := s.node(dirty).guest
	before, err := foreign(ctx, guest)
	if err != nil {
		return err
	}
	if err := s.planAndApply(ctx); err != nil {
		return err
	}
	after, err := foreign(ctx, guest)
	if err != nil {
		return err
	}
	if !slices.Equal(before, after) {
		return fmt.Errorf("what is not kube-proxy's has changed: before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	s.say("%d lines of the native tools about what is not ipvs mode's are as they were", len(before))
	return s.awaitClean(ctx)
}

// planAndApply asks the aggregator for the node's plan, orders that very plan by its digest, and has the node verified.
func (s *stage) planAndApply(ctx context.Context) error {
	plan, err := s.order(ctx, 3, "plan", dirty, "--target", "iptables")
	if err != nil {
		return err
	}
	digest := regexp.MustCompile(`--plan ([0-9a-f]{12,})`).FindStringSubmatch(plan)
	if digest == nil {
		return errors.New("the plan names no digest to apply it by")
	}
	if _, err := s.order(ctx, 0, "apply", dirty, "--target", "iptables", "--plan", digest[1]); err != nil {
		return err
	}
	_, err = s.onDirty(ctx, shownLines, 0, "verify", "--target", "iptables")
	return err
}

// shownLines is how much is shown of an answer: a plan names every object.
const shownLines = 40

// onDirty runs the agent on the dirty node, shows what it says, and checks its exit code.
func (s *stage) onDirty(ctx context.Context, most, want int, args ...string) (string, error) {
	fmt.Printf("\n%s$ offramp-agent %s\n", dirty, strings.Join(args, " "))
	result, err := s.node(dirty).guest.Run(ctx, append([]string{agentPath, "--node", dirty}, args...)...)
	if err != nil {
		return "", fmt.Errorf("running offramp-agent on %s: %w", dirty, err)
	}
	fmt.Print(head(result.Stdout, most), result.Stderr)
	return result.Stdout, sameCode("offramp-agent "+args[0]+" on "+dirty, want, result.ExitCode)
}

// head is the first lines of a text, and a word on how many more there are.
func head(text string, most int) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= most {
		return text
	}
	return strings.Join(lines[:most], "") + fmt.Sprintf("  … and %d lines more\n", len(lines)-most)
}

// foreign lists, by the native tools, what a clean-up for iptables mode must not touch: everything but the virtual servers
// and sets of kube-proxy's, and the chains that are ipvs mode's alone.
func foreign(ctx context.Context, guest *lab.Guest) ([]string, error) {
	var lines []string
	for _, command := range []string{
		"ipvsadm -Sn | grep -E ' 10\\.6\\.115\\.'",
		"ipset save | grep -v ' KUBE-'",
		"(iptables-nft-save; ip6tables-nft-save) | sed 's/\\[[0-9:]*\\]//' | grep -Ev '^#|KUBE-(NODE-PORT|LOAD-BALANCER|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER)( |$)|kube-proxy firewall rules'",
	} {
		result, err := guest.Run(ctx, "busybox", "sh", "-c", command)
		if err != nil {
			return nil, fmt.Errorf("listing what is foreign: %w", err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(result.Stdout), "\n")...)
	}
	return lines, nil
}

// awaitClean waits until the aggregator knows that the node is clean.
func (s *stage) awaitClean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstReports)
	defer cancel()
	for {
		nodes, err := s.list(ctx, offrampv1.Target_TARGET_IPTABLES)
		if err != nil {
			return err
		}
		if left := nodes[dirty].GetAssessment().GetLeftovers(); left.GetVirtualServers()+left.GetIpsets()+left.GetChains() == 0 {
			return s.ask(ctx, 0, "nodes")
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("the aggregator did not hear in time that the node is clean")
		}
	}
}
