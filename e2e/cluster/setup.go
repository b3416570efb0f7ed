package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// The address ranges of a node's pods.
func (n *Node) podRangeV4() string { return fmt.Sprintf("10.244.%d.0/24", n.number) }
func (n *Node) podRangeV6() string { return fmt.Sprintf("fd00:10:244:%x::/64", n.number) }

// noDetection lets IPv6 addresses of links that come later work at once, without a look for others that have them.
const noDetection = "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad\n"

// setUp gives the node what a machine has before kube-proxy comes: addresses, and forwarding and routes to all pods, as
// a network plugin makes them.
func (n *Node) setUp(ctx context.Context, spec NodeSpec) error {
	n.V6 = netip.MustParseAddr(fmt.Sprintf("fd00:18::%x:%x", n.V4.As4()[2], n.V4.As4()[3]))
	forward := "echo 1 >/proc/sys/net/ipv4/ip_forward\necho 1 >/proc/sys/net/ipv6/conf/all/forwarding\n"
	if err := feed(ctx, n, forward+noDetection, "sh", "-e"); err != nil {
		return err
	}
	// Service addresses have to be routed somewhere before a rule can send them elsewhere.
	if err := ip(ctx, n, fmt.Sprintf("address add %s/64 dev %s nodad", n.V6, uplink),
		"route add default via "+n.cluster.lab.HostAddr(), "route add ::/0 via "+hostV6); err != nil {
		return err
	}
	if err := n.vary(ctx, spec); err != nil {
		return err
	}
	for _, other := range n.cluster.enter(n) {
		if err := n.routeTo(ctx, other); err != nil {
			return err
		}
		if err := other.routeTo(ctx, n); err != nil {
			return err
		}
	}
	return n.routeFromLab(ctx)
}

// vary gives the node what only some nodes have, and kubelet's chains in the backend that it has then.
func (n *Node) vary(ctx context.Context, spec NodeSpec) error {
	if spec.Legacy {
		if err := n.makeLegacy(ctx); err != nil {
			return err
		}
	}
	if spec.SecondNIC {
		if err := n.addSecondNIC(ctx); err != nil {
			return err
		}
	}
	return n.addKubelet(ctx)
}

func (n *Node) routes() string {
	return fmt.Sprintf("route replace %s via %s\nroute replace %s via %s", n.podRangeV4(), n.V4, n.podRangeV6(), n.V6)
}

func (n *Node) routeTo(ctx context.Context, other *Node) error {
	return ip(ctx, n, other.routes())
}

// routeFromLab lets the lab's own programs, as the API server, reach the node's pods.
func (n *Node) routeFromLab(ctx context.Context) error {
	cmd := n.cluster.lab.Command(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(n.routes() + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("adding routes to the lab: %w: %s", err, out)
	}
	return nil
}

// register makes the node known to the API server.
func (n *Node) register(ctx context.Context) error {
	node := map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": n.Name, "labels": map[string]string{"kubernetes.io/hostname": n.Name}},
		"spec":     map[string]any{"podCIDR": n.podRangeV4(), "podCIDRs": []string{n.podRangeV4(), n.podRangeV6()}},
	}
	if err := n.cluster.API.Do(ctx, "POST", "/api/v1/nodes", node, nil); err != nil {
		return err
	}
	type address struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
	status := map[string]any{"status": map[string]any{"addresses": []address{
		{"InternalIP", n.V4.String()}, {"InternalIP", n.V6.String()}, {"Hostname", n.Name},
	}}}
	return n.cluster.API.Do(ctx, "PATCH", "/api/v1/nodes/"+n.Name+"/status", status, nil)
}
