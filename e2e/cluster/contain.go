package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// startLimit is what a program may take to be there that does nothing yet.
const startLimit = 10 * time.Second

// Contain gives a node that is no virtual machine processes, mounts and a host name of its own, beside its network.
// command becomes its first process, with PID 1; all else dies with that. From now on every program of the node runs in
// there.
func (n *Node) Contain(ctx context.Context, command ...string) (Process, error) {
	host, ok := n.Machine.(hosted)
	if !ok {
		return nil, errors.New("a virtual machine has all of its own already")
	}
	unshare := []string{"unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=SIGKILL"}
	process, err := startHost(host.command(ctx, append(unshare, command...)), nil)
	if err != nil {
		return nil, err
	}
	first, err := childOf(ctx, process)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("finding the first process of %s: %w", n.Name, err), process.kill())
	}
	host.enter = []string{"nsenter", "--target", strconv.Itoa(first), "--mount", "--uts", "--ipc", "--pid"}
	n.Machine, n.first = host, first
	return process, nil
}

// First is the host's number of the first process that Contain made: its namespaces are the node.
func (n *Node) First() int { return n.first }

// ProxyPath is where the node's kube-proxy is, in the files that the node sees. ProxyAt says that it is elsewhere.
func (n *Node) ProxyPath() string { return n.proxy }

// ProxyAt has kube-proxy run by another path: its last part is what the process is called.
func (n *Node) ProxyAt(path string) { n.proxy = path }

// childOf waits for the one process that another has started.
func childOf(ctx context.Context, p *hostProcess) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	path := fmt.Sprintf("/proc/%d/task/%[1]d/children", p.cmd.Process.Pid)
	for {
		content, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		if children := strings.Fields(string(content)); len(children) == 1 {
			return strconv.Atoi(children[0])
		}
		if err := pause(ctx, readyPoll, p.Done()); err != nil {
			return 0, err
		}
	}
}

// PodRange is where the node's pods have their IPv4 addresses, as 10.244.1.0/24.
func (n *Node) PodRange() string { return n.podRangeV4() }
