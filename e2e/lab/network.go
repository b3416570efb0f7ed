package lab

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is a network namespace of the host beside the lab's own: a node without a virtual machine, or a pod. It has
// no name and ends with the lab, with the process, or by Close.
type Network struct {
	lab   *Lab
	space *namespace
	close func()
}

// Network makes a network namespace with nothing but its loopback link, which is up.
func (l *Lab) Network(ctx context.Context) (*Network, error) {
	space, err := newNamespace(ctx, loopbackUp)
	if err != nil {
		return nil, err
	}
	n := &Network{lab: l, space: space, close: sync.OnceFunc(space.close)}
	l.space.onEnd(n.close)
	return n, nil
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	return nil
}

// Join gives the network a link of the given name that ends on the lab's bridge. It is up and has no address yet.
func (n *Network) Join(link string) error {
	outer := fmt.Sprintf("net%d", n.lab.next())
	err := n.lab.Do(func() error {
		bridge, err := netlink.LinkByName(bridgeName)
		if err != nil {
			return fmt.Errorf("finding the bridge: %w", err)
		}
		attributes := netlink.LinkAttrs{Name: outer, MasterIndex: bridge.Attrs().Index}
		return n.addPair(&netlink.Veth{LinkAttrs: attributes, PeerName: link})
	})
	if err != nil {
		return fmt.Errorf("joining the lab's network: %w", err)
	}
	return n.up(link)
}

// Link connects two networks by a pair of links, outer in this one and inner in the other. Both are up and have no
// address yet. The outer one has the given hardware address.
func (n *Network) Link(outer string, hardware net.HardwareAddr, other *Network, inner string) error {
	err := n.Do(func() error {
		attributes := netlink.LinkAttrs{Name: outer, HardwareAddr: hardware}
		return other.addPair(&netlink.Veth{LinkAttrs: attributes, PeerName: inner})
	})
	if err != nil {
		return fmt.Errorf("linking two networks: %w", err)
	}
	return other.up(inner)
}

// addPair makes a pair of links, one in the calling thread's namespace and its peer in this network.
func (n *Network) addPair(pair *netlink.Veth) error {
	pair.PeerNamespace = netlink.NsFd(int(n.space.handle.Fd()))
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("making the link %s: %w", pair.Name, err)
	}
	if err := netlink.LinkSetUp(pair); err != nil {
		return fmt.Errorf("bringing %s up: %w", pair.Name, err)
	}
	return nil
}

func (n *Network) up(name string) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("finding %s: %w", name, err)
		}
		return netlink.LinkSetUp(link)
	})
}

// Do runs f on a thread inside the network; see Lab.Do.
func (n *Network) Do(f func() error) error { return n.space.do(f) }

// Command prepares a program of the host that runs in this network; see Lab.Command.
func (n *Network) Command(ctx context.Context, argv ...string) *HostCommand {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	return &HostCommand{Cmd: cmd, space: n.space}
}

// ID names the namespace as /proc/PID/ns/net does: "net:[4026532281]".
func (n *Network) ID() (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(n.space.handle.Fd()), &stat); err != nil {
		return "", fmt.Errorf("looking at a network namespace: %w", err)
	}
	return fmt.Sprintf("net:[%d]", stat.Ino), nil
}

// Close gives the network up, which kills its programs, and waits until its holder is gone.
func (n *Network) Close() error {
	n.close()
	return nil
}
