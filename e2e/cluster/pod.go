package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Pod is a network namespace on a node, with a listener on port 8080 (TCP and UDP) that answers with the pod's name.
type Pod struct {
	Machine

	// Name is the pod's name.
	Name string
	// Node is where it runs.
	Node *Node
	// V4 and V6 are its addresses.
	V4, V6 netip.Addr

	server Process
}

// gateway is the hardware address of a pod's way out. The pod knows it by a fixed entry, so that it works without an
// address on the node's side, which kube-proxy would take for one of the node's.
var gateway = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

// AddPod makes a pod on the node.
func (n *Node) AddPod(ctx context.Context, name string) (*Pod, error) {
	n.cluster.mu.Lock()
	n.pods++
	number := n.pods
	n.cluster.mu.Unlock()
	p := &Pod{
		Name: name, Node: n,
		V4: netip.AddrFrom4([4]byte{10, 244, byte(n.number), byte(number + 1)}),
		V6: netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%x::%x", n.number, number+1)),
	}
	outer := fmt.Sprintf("pod%d", number)
	if err := p.link(ctx, outer); err != nil {
		return nil, fmt.Errorf("linking the pod %s: %w", name, err)
	}
	if err := p.address(ctx, outer); err != nil {
		return nil, fmt.Errorf("setting up the pod %s: %w", name, err)
	}
	var err error
	if p.server, err = p.Start(ctx, nil, n.program, "serve", name); err != nil {
		return nil, fmt.Errorf("starting the listener of %s: %w", name, err)
	}
	return p, p.waitServing(ctx)
}

// link makes the pod's namespace with a link eth0, whose other end on the node is called outer.
func (p *Pod) link(ctx context.Context, outer string) error {
	if p.Node.Guest != nil {
		p.Machine = virtual{guest: p.Node.Guest, prefix: []string{"ip", "netns", "exec", p.Name}}
		if err := ip(ctx, p.Node, "netns add "+p.Name); err != nil {
			return err
		}
		if err := feed(ctx, p, noDetection, "sh", "-e"); err != nil {
			return err
		}
		if err := ip(ctx, p.Node, fmt.Sprintf("link add %s address %s type veth peer name eth0 netns %s", outer, gateway, p.Name),
			fmt.Sprintf("link set %s up", outer)); err != nil {
			return err
		}
		return ip(ctx, p, "link set lo up", "link set eth0 up")
	}
	network, err := p.Node.cluster.lab.Network(ctx)
	if err != nil {
		return err
	}
	p.Machine = hosted{network: network}
	if err := feed(ctx, p, noDetection, "sh", "-e"); err != nil {
		return err
	}
	return p.Node.network.Link(outer, gateway, network, "eth0")
}

func (p *Pod) address(ctx context.Context, outer string) error {
	if err := ip(ctx, p.Node, fmt.Sprintf("route add %s dev %s", p.V4, outer), fmt.Sprintf("route add %s dev %s", p.V6, outer)); err != nil {
		return err
	}
	const way = " lladdr %s dev eth0 nud permanent"
	return ip(ctx, p, fmt.Sprintf("address add %s/32 dev eth0", p.V4), fmt.Sprintf("address add %s/128 dev eth0 nodad", p.V6),
		fmt.Sprintf("neighbour add 169.254.1.1"+way, gateway), "route add default via 169.254.1.1 dev eth0 onlink",
		fmt.Sprintf("neighbour add fe80::1"+way, gateway), "route add ::/0 via fe80::1 dev eth0")
}

func (p *Pod) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for !strings.Contains(p.server.Output(), "serving") {
		if err := pause(ctx, readyPoll, p.server.Done()); err != nil {
			return fmt.Errorf("waiting for the listener of %s: %w: %s", p.Name, err, p.server.Output())
		}
	}
	return nil
}
