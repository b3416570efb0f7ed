package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/e2e/lab/wire"
)

type mount struct{ kind, at string }

// mountAll mounts what a node has. cgroup2 and bpf may be missing from a kernel; the others may not.
func mountAll() error {
	for _, m := range []mount{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"devpts", "/dev/pts"},
		{"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", m.at, err)
		}
		if err := unix.Mount(m.kind, m.at, m.kind, unix.MS_NOSUID, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	return os.Chmod("/tmp", 0o777|os.ModeSticky)
}

// configure gives the guest its name and its link its address, and returns the address to serve on.
func configure() (string, error) {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", fmt.Errorf("reading the kernel's command line: %w", err)
	}
	if err := unix.Sethostname([]byte(wire.Parameter(string(cmdline), wire.NameKey))); err != nil {
		return "", fmt.Errorf("setting the host name: %w", err)
	}
	load := exec.Command("/sbin/modprobe", "-a", "virtio_pci", "virtio_net")
	load.Env = environment()
	if out, err := load.CombinedOutput(); err != nil {
		return "", fmt.Errorf("loading virtio_net: %w: %s", err, out)
	}
	address, err := netlink.ParseAddr(wire.Parameter(string(cmdline), wire.AddressKey))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", wire.AddressKey, err)
	}
	return address.IP.String(), linksUp(address)
}

func linksUp(address *netlink.Addr) error {
	name, err := physicalLink("/sys/class/net")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	if err := netlink.LinkSetName(link, wire.Link); err != nil {
		return fmt.Errorf("renaming %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("setting the address: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	for _, l := range []netlink.Link{lo, link} {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("bringing a link up: %w", err)
		}
	}
	return nil
}

// physicalLink is the one link that a device stands behind.
func physicalLink(class string) (string, error) {
	devices, err := filepath.Glob(filepath.Join(class, "*", "device"))
	if err != nil || len(devices) != 1 {
		return "", fmt.Errorf("want one network device, have %d (%v)", len(devices), err)
	}
	return filepath.Base(filepath.Dir(devices[0])), nil
}

// listen opens the server's socket and says so on the console.
func listen(address string) (net.Listener, error) {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, wire.Port))
	if err != nil {
		return nil, fmt.Errorf("listening for the lab: %w", err)
	}
	fmt.Printf("\n%s\n", wire.Ready)
	return listener, nil
}
