package main

import (
	"context"
	"fmt"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
)

// real brings nodes up as machines of a real cluster, on which the real kube-proxy makes the state.
type real struct{ stage *stage }

// services are those of e2e/cluster/services.yaml that the demo has: kube-proxy on three machines in software takes a
// minute for all of them.
func services() []string {
	return []string{"cluster", "many-ports", "udp", "affinity", "internal-local", "node-port", "load-balancer-ranges", "external-ips"}
}

// left implements origin: what ipvs mode makes of these Services and the API server's own (IPv4) on a node with one
// address of each family, counted by hand. A family has a virtual server for each port of a cluster IP (10), of an external
// IP (1), of a load balancer's (1), and for each node port (2), and an address for each IP but the node's (10).
func (real) left() leftovers { return leftovers{servers: 2*14 + 1, sets: 34, addresses: 2*10 + 1} }

// bring implements origin.
func (r real) bring(ctx context.Context, nodes []*node) error {
	c, err := cluster.Start(ctx, r.stage.lab, cluster.Options{Log: &progress{stage: r.stage}})
	if err != nil {
		return fmt.Errorf("starting a cluster: %w", err)
	}
	pods := make([]*cluster.Pod, len(nodes))
	err = each(nodes, func(i int, n *node) (err error) {
		if n.member, err = c.AddNode(ctx, cluster.NodeSpec{
			Name: n.name, Kernel: n.kernel, Proxy: kube.Proxy137, Files: r.stage.programs.forGuest(), Disk: diskMiB,
		}); err != nil {
			return err
		}
		n.guest = n.member.Guest
		pods[i], err = n.member.AddPod(ctx, "pod-on-"+n.name)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.CreateServices(ctx, r.stage.node(dirty).member, pods, services()...); err != nil {
		return fmt.Errorf("making Services: %w", err)
	}
	return each(nodes, func(_ int, n *node) error { return n.runProxies(ctx) })
}

// runProxies runs kube-proxy in one mode after the other.
func (n *node) runProxies(ctx context.Context) error {
	for i, mode := range n.modes {
		p, err := n.member.SyncedProxy(ctx, cluster.ProxyConfig{Mode: mode, Scheduler: "lc", StrictARP: true})
		if err != nil {
			return err
		}
		n.kubeProxy = p
		if i == len(n.modes)-1 {
			break
		}
		if err := p.End(); err != nil {
			return err
		}
	}
	return nil
}

// realProxy says whether the programs of a real cluster are in the cache.
func realProxy(ctx context.Context) (bool, error) {
	for _, p := range []kube.Program{kube.Etcd, kube.APIServer, kube.Proxy137} {
		there, err := kube.Cached(ctx, p)
		if err != nil || !there {
			return false, err
		}
	}
	return true, nil
}
