package lab

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const bridgeName = "lab"

// makeBridge sets up the calling thread's fresh network namespace.
func makeBridge(addresses []string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making a bridge: %w", err)
	}
	for _, address := range addresses {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return fmt.Errorf("reading the lab's address %s: %w", address, err)
		}
		if err := netlink.AddrAdd(bridge, parsed); err != nil {
			return fmt.Errorf("setting the lab's address: %w", err)
		}
	}
	for _, link := range []netlink.Link{lo, bridge} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("bringing a link up: %w", err)
		}
	}
	return nil
}

// openTap makes a tap link on the bridge. It is not persistent: it lasts as long as the returned file, which a virtual
// machine inherits, is open somewhere.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	tap := os.NewFile(uintptr(fd), name)
	if err := attachTap(fd, name); err != nil {
		_ = tap.Close()
		return nil, err
	}
	return tap, nil
}

func attachTap(fd int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("naming a tap link %s: %w", name, err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("making the tap link %s: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding the tap link %s: %w", name, err)
	}
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("finding the bridge: %w", err)
	}
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("adding %s to the bridge: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing %s up: %w", name, err)
	}
	return nil
}
