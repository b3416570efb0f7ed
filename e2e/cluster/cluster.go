// Package cluster is a real Kubernetes cluster in the lab: etcd and kube-apiserver on the host, kube-proxy on nodes that
// are network namespaces or virtual machines, and pods that are network namespaces with real listeners.
//
// Everything lies in the lab's own network and in memory, and is tied to the process that made it: killed in whatever
// way, it leaves no process, no namespace and no file.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

// The networks of the cluster. The lab's own is 198.18.0.0/16; nodes get an IPv6 address beside that.
const (
	servicesV4, servicesV6 = "10.96.0.0/16", "fd00:10:96::/112"
	podsV4, podsV6         = "10.244.0.0/16", "fd00:10:244::/48"
	hostV6                 = "fd00:18::1"
)

// Options say how a cluster is set up. The zero value is good.
type Options struct {
	// Log gets a line for each step, nil for none.
	Log io.Writer
	// Kubelets are the names of the nodes that will have a real kubelet. Where there are any, the cluster has
	// kube-controller-manager and kube-scheduler, too, and pods get service accounts. See e2e/nodes.
	Kubelets []string
}

// Cluster is a running control plane with nodes. Its methods may be called from several goroutines.
type Cluster struct {
	// API is the API server's, for an administrator.
	API *API

	lab      *lab.Lab
	log      *stepLog
	plane    *plane
	endpoint string // the program that pods run

	mu      sync.Mutex
	numbers int     // how many nodes got one
	nodes   []*Node // those that the others can reach
}

// Start starts etcd and kube-apiserver in the lab and waits until they answer. It builds them first where the cache has
// none, which takes minutes and says so on the log. Everything ends with ctx and with the lab.
func Start(ctx context.Context, l *lab.Lab, options Options) (*Cluster, error) {
	c := &Cluster{lab: l, log: &stepLog{w: options.Log}}
	programs, err := findPrograms(ctx, c.log)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	setup := l.Command(ctx, "ip", "-6", "address", "add", hostV6+"/64", "dev", "lab", "nodad")
	if out, err := setup.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("giving the lab an IPv6 address: %w: %s", err, out)
	}
	if c.plane, err = startPlane(ctx, l, programs, options.Kubelets); err != nil {
		return nil, err
	}
	if len(options.Kubelets) > 0 {
		if err := c.plane.startControllers(ctx, l, c.log); err != nil {
			return nil, err
		}
	}
	c.API, c.endpoint = c.plane.api, programs.endpoint
	c.log.step(began, "the API server is ready")
	return c, nil
}

// nextNumber is the number of the next node, from 1.
func (c *Cluster) nextNumber() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers++
	return c.numbers
}

// enter makes a node one of those that others can reach, and returns the ones before it. Of two nodes that are made at the
// same time exactly one gets the other.
func (c *Cluster) enter(n *Node) []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := slices.Clone(c.nodes)
	c.nodes = append(c.nodes, n)
	return others
}

// Stop ends kube-apiserver and etcd and waits until they are gone.
func (c *Cluster) Stop() error {
	var all error
	for _, p := range c.plane.controllers {
		all = errors.Join(all, p.kill())
	}
	return errors.Join(all, c.plane.apiserver.kill(), c.plane.etcd.kill())
}

// Processes are those of the control plane, by the names of their programs.
func (c *Cluster) Processes() map[string]Process {
	all := map[string]Process{"etcd": c.plane.etcd, "kube-apiserver": c.plane.apiserver}
	for name, p := range c.plane.controllers {
		all[name] = p
	}
	return all
}

// Logs returns what etcd and kube-apiserver have written so far.
func (c *Cluster) Logs() map[string]string {
	logs := map[string]string{}
	for name, p := range c.Processes() {
		logs[name] = p.Output()
	}
	return logs
}

// Address is where the API server listens in the lab's network.
func (c *Cluster) Address() string { return c.lab.HostAddr() + ":" + apiPort }

// stepLog writes a line for each thing that was done.
type stepLog struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *stepLog) Write(p []byte) (int, error) {
	if l.w == nil {
		return len(p), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *stepLog) step(since time.Time, format string, args ...any) {
	took := time.Since(since).Round(100 * time.Millisecond)
	_, _ = fmt.Fprintf(l, "cluster: %s (%s)\n", fmt.Sprintf(format, args...), took)
}
