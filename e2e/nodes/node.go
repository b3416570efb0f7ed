// Package nodes makes real nodes of a lab's cluster: each a kubelet with Debian's containerd and runc in namespaces of
// its own, whose host network is what e2e/cluster made. A node's root is the host's, read-only, with an /etc and a /var of
// its own.
//
// What runs on a node are programs of one namespace of processes, which the kernel ends with the process that made it.
// What that leaves are empty cgroups and the files of /etc and /var; a process of its own waits for that moment and
// removes them.
package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

const (
	machinePackage = "offramp.dev/offramp/e2e/nodes/machine"
	pausePackage   = "offramp.dev/offramp/e2e/nodes/pause"
	// startLimit is for containerd's and kubelet's start, each some seconds on an idle machine.
	startLimit = 2 * time.Minute
	poll       = 200 * time.Millisecond
)

// Node is a node with a real kubelet.
type Node struct {
	*cluster.Node

	machine, containerd, kubelet cluster.Process
	sweeper                      *sweeper
}

// Add makes a node, of a name that cluster.Options.Kubelets has, and waits until its kubelet says that it is ready. The
// first time it builds kubelet, which takes minutes.
func Add(ctx context.Context, c *cluster.Cluster, spec cluster.NodeSpec, images ...string) (*Node, error) {
	made, err := c.AddNode(ctx, spec)
	if err != nil {
		return nil, err
	}
	n := &Node{Node: made}
	for _, step := range []func(context.Context) error{
		n.contain,
		n.startContainerd,
		func(ctx context.Context) error { return n.Import(ctx, images...) },
		func(ctx context.Context) error { return n.startKubelet(ctx, c) },
		func(ctx context.Context) error { return WaitNodeReady(ctx, c, n.Name) },
	} {
		if err := step(ctx); err != nil {
			return n, fmt.Errorf("making the node %s: %w", spec.Name, err)
		}
	}
	return n, nil
}

// contain gives the node its cgroups, and its first process with a root of its own.
func (n *Node) contain(ctx context.Context) error {
	program, err := built(ctx, machinePackage)
	if err != nil {
		return err
	}
	if n.sweeper, err = startSweeper(program, fmt.Sprintf("offramp-%d-%s", os.Getpid(), n.Name), true); err != nil {
		return err
	}
	if n.machine, err = n.Contain(ctx, program, "init", n.Name, n.sweeper.disk); err != nil {
		return err
	}
	if err := waitFor(ctx, n.machine, func() bool { return strings.Contains(n.machine.Output(), "ready") }); err != nil {
		return err
	}
	proxy, err := n.named(ctx, "kube-proxy", n.ProxyPath())
	n.ProxyAt(proxy)
	return err
}

// named is a path of a program by which its process is called as on every node. In the cache their names are longer.
func (n *Node) named(ctx context.Context, name, program string) (string, error) {
	path := filepath.Join("/run/programs", name)
	result, err := n.Run(ctx, "sh", "-c", `mkdir -p /run/programs && ln -s "$0" "$1"`, program, path)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("naming %s: %s", name, result.Stderr)
	}
	return path, err
}

// Disk is the folder of the host that has the node's /etc and /var.
func (n *Node) Disk() string { return n.sweeper.disk }

// Close ends all that runs on the node and removes its cgroups. The cluster still has the node's object.
func (n *Node) Close() error {
	if n.machine != nil {
		if _, err := n.machine.Stop(0); err != nil {
			return err
		}
	}
	if n.sweeper == nil {
		return nil
	}
	return n.sweeper.end()
}

// Enter is the start of a command that runs the rest of it on the node, in a shell of the host.
func (n *Node) Enter() string { return fmt.Sprintf("nsenter --target %d --all", n.First()) }

// processes are those that the node has from its start.
func (n *Node) processes() map[string]cluster.Process {
	all := map[string]cluster.Process{}
	for name, p := range map[string]cluster.Process{"machine": n.machine, "containerd": n.containerd, "kubelet": n.kubelet} {
		if p != nil {
			all[name] = p
		}
	}
	return all
}

// Logs returns what containerd and kubelet have written so far.
func (n *Node) Logs() map[string]string {
	logs := map[string]string{}
	for name, p := range n.processes() {
		logs[name] = p.Output()
	}
	return logs
}

// built is the path of a program of this module, built.
func built(ctx context.Context, pkg string) (string, error) {
	dir, err := os.MkdirTemp("", "nodes-*")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, filepath.Base(pkg))
	if err := lab.GoBuild(ctx, pkg, path); err != nil {
		return "", err
	}
	return keep(ctx, path)
}

// write puts a text into a file of the node.
func (n *Node) write(ctx context.Context, path, text string) error {
	const script = `mkdir -p "$(dirname "$0")" && cat >"$0"`
	result, err := n.RunInput(ctx, []byte(text), "sh", "-c", script, path)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("writing %s: %s", path, result.Stderr)
	}
	return err
}

// waitFor waits until done says so, or a process that has to live has ended.
func waitFor(ctx context.Context, p cluster.Process, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !done() {
		select {
		case <-time.After(poll):
		case <-p.Done():
			return fmt.Errorf("it has ended: %s", p.Output())
		case <-ctx.Done():
			return fmt.Errorf("waiting for it: %w; it said: %s", ctx.Err(), p.Output())
		}
	}
	return nil
}

func kubelet(ctx context.Context) (string, error) { return kube.Build(ctx, kube.Kubelet, os.Stderr) }
