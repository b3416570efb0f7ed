package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/lab"
)

// nodeSpec is one node of the demo.
type nodeSpec struct {
	name   string
	kernel string
	// modes are those that kube-proxy runs in, one after the other; the last one stays.
	modes []string
	// capture is the state of a real node of kube-proxy 1.37.2 after those, for where kube-proxy is a stand-in.
	capture string
	story   string
}

// dirty is the node that the demo looks at closely, and that SEED changes.
const dirty = "node-b"

// specs are the nodes: one that cannot go, one that went and was never cleaned, one that is there.
func specs() []nodeSpec {
	return []nodeSpec{
		{"node-a", "5.10", []string{"ipvs"}, "ipvs", "runs ipvs mode on a kernel too old for nftables mode"},
		{dirty, "6.1", []string{"ipvs", "iptables"}, "ipvs-then-iptables", "was switched from ipvs to iptables mode, and not cleaned"},
		{"node-c", "6.12", []string{"nftables"}, "nftables", "runs nftables mode"},
	}
}

// node is a node that is up.
type node struct {
	nodeSpec
	guest     *lab.Guest
	member    *cluster.Node // nil where kube-proxy is a stand-in
	kubeProxy interface{ Output() string }
	agent     *lab.Process
}

// origin is where the state of the nodes comes from.
type origin interface {
	// bring brings nodes up, each with a kube-proxy in the last of its modes.
	bring(ctx context.Context, nodes []*node) error
	// left is what the dirty node then has.
	left() leftovers
}

// leftovers count what of ipvs mode is on a node.
type leftovers struct{ servers, sets, addresses int }

// each does something with all nodes side by side.
func each(nodes []*node, do func(i int, n *node) error) error {
	var group errgroup.Group
	for i, n := range nodes {
		group.Go(func() error { return do(i, n) })
	}
	return group.Wait()
}

// Where things are in a guest.
const (
	agentPath = "/usr/local/bin/offramp-agent"
	caPath    = "/etc/offramp/ca.pem"
	stateDir  = "/var/lib/offramp" // on a disk: backups and journal are to survive
)

// startAgent starts the agent on a node.
func (n *node) startAgent(ctx context.Context, aggregator string) (err error) {
	if err := n.guest.MountDisk(ctx, stateDir); err != nil {
		return err
	}
	n.agent, err = n.guest.Start(ctx, lab.Command{Argv: []string{agentPath, "run", "--node", n.name,
		"--aggregator", aggregator, "--ca-file", caPath, "--scan-interval", scanInterval.String(),
		"--cleanup", "apply", "--state-dir", stateDir}})
	if err != nil {
		return fmt.Errorf("starting the agent on %s: %w", n.name, err)
	}
	return nil
}

// diskMiB is plenty for one backup.
const diskMiB = 64

// Intervals are short, so that nobody waits for a heartbeat.
const (
	heartbeatInterval = 2 * time.Second
	scanInterval      = 5 * time.Second
)
