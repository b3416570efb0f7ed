package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/wire"
)

// uplink is the link by which every node is in the lab's network, as the lab names it in guests.
const uplink = wire.Link

// NodeSpec says what node is wanted.
type NodeSpec struct {
	// Name is the node's, in Kubernetes and as its host name.
	Name string
	// Kernel is one of lab.Kernels() for a virtual machine. Empty is a network namespace of the host: quick, but without
	// ip_vs and the dummy link, so for iptables and nftables mode only.
	Kernel string
	// Proxy is the kube-proxy that the node will run.
	Proxy kube.Program
	// Legacy makes iptables mean iptables-legacy on the node.
	Legacy bool
	// SecondNIC gives it a further link eth1 with addresses of its own, and eth0 a secondary address.
	SecondNIC bool
	// Files are put into a virtual machine before it boots.
	Files []lab.File
	// Disk is the size of an empty disk of a virtual machine in MiB; 0 is none. See lab.Guest.MountDisk.
	Disk int
}

// Node is a node of the cluster. Its methods may be called from several goroutines.
type Node struct {
	Machine

	// Name is the node's name.
	Name string
	// V4 and V6 are its addresses in the lab's network, as in its Node object.
	V4, V6 netip.Addr
	// Guest is its virtual machine, nil where it has none.
	Guest *lab.Guest

	cluster *Cluster
	network *lab.Network // where it is no virtual machine
	number  int
	proxy   string // path of kube-proxy as the node sees it
	program string // path of the endpoint program as the node sees it
	pods    int
	first   int // process of a contained node

	programs []string // folders that come before the host's own in PATH
}

// Paths of the programs in virtual machines.
const (
	guestProxy    = "/opt/kube-proxy"
	guestEndpoint = "/opt/endpoint"
)

// AddNode makes a node, registers it, and connects its pods with those of the other nodes.
func (c *Cluster) AddNode(ctx context.Context, spec NodeSpec) (*Node, error) {
	began := time.Now()
	proxy, err := kube.Build(ctx, spec.Proxy, c.log)
	if err != nil {
		return nil, err
	}
	n := &Node{Name: spec.Name, cluster: c, number: c.nextNumber(), proxy: proxy, program: c.endpoint}
	make := n.makeNamespace
	if spec.Kernel != "" {
		make = n.boot
	}
	if err := make(ctx, spec); err != nil {
		return nil, fmt.Errorf("making the node %s: %w", n.Name, err)
	}
	if err := n.setUp(ctx, spec); err != nil {
		return nil, fmt.Errorf("setting up the node %s: %w", n.Name, err)
	}
	if err := n.register(ctx); err != nil {
		return nil, fmt.Errorf("registering the node %s: %w", n.Name, err)
	}
	c.log.step(began, "node %s is there (%s)", n.Name, n.kind(spec))
	return n, nil
}

func (n *Node) kind(spec NodeSpec) string {
	if n.Guest == nil {
		return "a network namespace"
	}
	return fmt.Sprintf("kernel %s by %s", spec.Kernel, n.Guest.Accel)
}

// boot makes the node a virtual machine.
func (n *Node) boot(ctx context.Context, spec NodeSpec) error {
	guest, err := n.cluster.lab.Boot(ctx, lab.VM{Name: spec.Name, Kernel: spec.Kernel, Disk: spec.Disk, Files: append([]lab.File{
		{Path: guestProxy, Host: n.proxy, Mode: 0o755}, {Path: guestEndpoint, Host: n.program, Mode: 0o755},
	}, spec.Files...)})
	if err != nil {
		return err
	}
	n.Guest, n.Machine, n.proxy, n.program = guest, virtual{guest: guest}, guestProxy, guestEndpoint
	n.V4 = netip.MustParseAddr(guest.Addr())
	if _, err := Output(ctx, n, "modprobe", "-a", "nf_conntrack", "veth"); err != nil {
		return err
	}
	return feed(ctx, n, "mkdir -p /mnt; ln -s /run /var/run", "sh", "-e")
}

// makeNamespace makes the node a network namespace of the host. Its addresses lie beside those of guests.
func (n *Node) makeNamespace(ctx context.Context, _ NodeSpec) error {
	network, err := n.cluster.lab.Network(ctx)
	if err != nil {
		return err
	}
	n.network, n.Machine = network, hosted{network: network}
	if err := n.withoutModprobe(ctx); err != nil {
		return err
	}
	if err := feed(ctx, n, noDetection, "sh", "-e"); err != nil {
		return err
	}
	n.V4 = netip.AddrFrom4([4]byte{198, 18, 200, byte(n.number)})
	if err := network.Join(uplink); err != nil {
		return err
	}
	return ip(ctx, n, fmt.Sprintf("address add %s/16 dev %s", n.V4, uplink))
}

// Close switches the node off and takes it out of the cluster.
func (n *Node) Close(ctx context.Context) error {
	if err := n.cluster.API.Do(ctx, "DELETE", "/api/v1/nodes/"+n.Name, nil, nil); err != nil {
		return err
	}
	if n.Guest != nil {
		return n.Guest.Close()
	}
	return n.network.Close()
}
