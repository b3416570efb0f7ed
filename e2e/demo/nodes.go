package main

import (
	"context"
	"fmt"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

// nodeSpec is one node of the demo.
type nodeSpec struct {
	name    string
	kernel  string
	capture string // the state of a real node of kube-proxy 1.37.2 that is put into it
	story   string
}

// dirty is the node that the demo looks at closely, and that SEED changes.
const dirty = "node-b"

// specs are the nodes: one that cannot go, one that went and was never cleaned, one that is there.
func specs() []nodeSpec {
	return []nodeSpec{
		{"node-a", "5.10", "ipvs", "runs ipvs mode on a kernel too old for nftables mode"},
		{dirty, "6.1", "ipvs-then-iptables", "was switched from ipvs to iptables mode, and not cleaned"},
		{"node-c", "6.12", "nftables", "runs nftables mode"},
	}
}

// node is a node that is up.
type node struct {
	nodeSpec
	guest     *lab.Guest
	kubeProxy *lab.Process
	agent     *lab.Process
}

// Where things are in a guest.
const (
	agentPath = "/usr/local/bin/offramp-agent"
	caPath    = "/etc/offramp/ca.pem"
	stateDir  = "/var/lib/offramp" // on a disk: backups and journal are to survive
)

// bring boots a node, puts its state into it and starts what runs there.
func bring(ctx context.Context, l *lab.Lab, spec nodeSpec, files programs, aggregator string) (*node, error) {
	guest, err := l.Boot(ctx, lab.VM{Name: spec.name, Kernel: spec.kernel, Files: files.forGuest(), Disk: diskMiB})
	if err != nil {
		return nil, fmt.Errorf("booting %s: %w", spec.name, err)
	}
	if err := guest.MountDisk(ctx, stateDir); err != nil {
		return nil, err
	}
	n := &node{nodeSpec: spec, guest: guest}
	if err := lab.Restore(ctx, guest, spec.capture); err != nil {
		return nil, err
	}
	if n.kubeProxy, err = lab.StandIn(ctx, guest, spec.capture); err != nil {
		return nil, err
	}
	n.agent, err = guest.Start(ctx, lab.Command{Argv: []string{agentPath, "run", "--node", spec.name,
		"--aggregator", aggregator, "--ca-file", caPath, "--scan-interval", scanInterval.String()}})
	if err != nil {
		return nil, fmt.Errorf("starting the agent on %s: %w", spec.name, err)
	}
	return n, nil
}

// diskMiB is plenty for one backup.
const diskMiB = 64

// Intervals are short, so that nobody waits for a heartbeat.
const (
	heartbeatInterval = 2 * time.Second
	scanInterval      = 5 * time.Second
)
