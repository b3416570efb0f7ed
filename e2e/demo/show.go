package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// firstReports is how long nodes get to report, on slow machines.
const firstReports = 90 * time.Second

// show asks what a person would ask, and checks the answers.
func (s *stage) show(ctx context.Context) error {
	if err := s.awaitReports(ctx); err != nil {
		return err
	}
	s.say("all nodes have reported")
	for _, n := range s.nodes {
		fmt.Printf("          %s: kernel %-5s %s\n", n.name, n.kernel, n.story)
	}
	// The aggregator is to have listened for three heartbeats before its word counts for the whole fleet.
	listening := (3 * heartbeatInterval).String()
	for _, asked := range []struct {
		args []string
		want int
	}{
		{[]string{"nodes"}, 0},
		{[]string{"ready", "--target", "nftables", "--min-listening", listening}, 2},
	} {
		if err := s.ask(ctx, asked.want, asked.args...); err != nil {
			return err
		}
	}
	if err := s.verifyOnNodes(ctx); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.cleanUp(ctx)
}

// awaitReports waits until every node has reported what it is.
func (s *stage) awaitReports(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstReports)
	defer cancel()
	var last error
	for {
		nodes, err := s.list(ctx, offrampv1.Target_TARGET_NFTABLES)
		switch {
		case err != nil:
			last = err
		case s.complete(nodes):
			return nil
		default:
			last = fmt.Errorf("%d of %d nodes have reported in full", len(nodes), len(s.nodes))
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-s.ended:
			return fmt.Errorf("the aggregator ended: %w; %s", s.endedBy, s.logs())
		case <-ctx.Done():
			return fmt.Errorf("waiting for the nodes' reports: %w; %s", last, s.logs())
		}
	}
}

// complete tells whether every node has said in which mode it runs, the dirty one with what it was seeded with.
func (s *stage) complete(nodes map[string]*offrampv1.NodeSummary) bool {
	for _, n := range s.nodes {
		mode := nodes[n.name].GetAssessment().GetRunningMode()
		if mode <= offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
			return false
		}
	}
	return nodes[dirty].GetInventory().GetVirtualServers() == uint64(s.origin.left().servers+2*s.seeded)
}

// logs is what the programs said, for when something went wrong.
func (s *stage) logs() string {
	text, err := os.ReadFile(s.logFile)
	if err != nil {
		text = []byte(err.Error())
	}
	all := "the aggregator's log:\n" + string(text)
	for _, n := range s.nodes {
		all += fmt.Sprintf("\nthe agent's log on %s:\n%s\nkube-proxy there:\n%s", n.name, n.agent.Output(), n.kubeProxy.Output())
	}
	return all
}

// list asks the aggregator for all nodes, by name.
func (s *stage) list(ctx context.Context, target offrampv1.Target) (map[string]*offrampv1.NodeSummary, error) {
	out, err := s.kubectl(ctx, "nodes", "--target", word(target), "-o", "json").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("kubectl-offramp nodes: %w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("kubectl-offramp nodes: %w", err)
	}
	var answer offrampv1.ListNodesResponse
	if err := protojson.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("reading what kubectl-offramp nodes printed: %w", err)
	}
	nodes := map[string]*offrampv1.NodeSummary{}
	for _, n := range answer.GetNodes() {
		nodes[n.GetNode()] = n
	}
	return nodes, nil
}

func word(target offrampv1.Target) string {
	return strings.ToLower(strings.TrimPrefix(target.String(), "TARGET_"))
}
