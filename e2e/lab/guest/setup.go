package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

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

// configure gives the guest its name and brings its link to the lab up. It returns the kernel's command line.
func configure() (string, error) {
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", fmt.Errorf("reading the kernel's command line: %w", err)
	}
	cmdline := string(text)
	if err := unix.Sethostname([]byte(wire.Parameter(cmdline, wire.NameKey))); err != nil {
		return "", fmt.Errorf("setting the host name: %w", err)
	}
	load := exec.Command("/sbin/modprobe", "-a", "virtio_pci", "virtio_net")
	load.Env = environment()
	if out, err := load.CombinedOutput(); err != nil {
		return "", fmt.Errorf("loading virtio_net: %w: %s", err, out)
	}
	return cmdline, linkUp(wire.LinkMAC, wire.Link, wire.Parameter(cmdline, wire.AddressKey))
}

// linkUp finds a link by how its hardware address begins, renames it and brings it and lo up.
func linkUp(mac, name, address string) error {
	link, err := findLink(mac)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetName(link, name); err != nil {
		return fmt.Errorf("renaming a link: %w", err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("reading the address %q of %s: %w", address, name, err)
	}
	if err := netlink.AddrAdd(link, parsed); err != nil {
		return fmt.Errorf("setting the address of %s: %w", name, err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	for _, l := range []netlink.Link{lo, link} {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("bringing %s up: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

func findLink(mac string) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().HardwareAddr.String(), mac) {
			return link, nil
		}
	}
	return nil, fmt.Errorf("no link with a hardware address like %s", mac)
}

// listen brings the control link up and opens the server's socket on it. The link is moved here by PID 1, which may
// take an instant.
func listen(address string) (net.Listener, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := findLink(wire.ControlMAC); err == nil {
			break
		} else if time.Now().After(end) {
			return nil, err
		}
	}
	if err := linkUp(wire.ControlMAC, "control0", address); err != nil {
		return nil, err
	}
	ip, _, _ := strings.Cut(address, "/")
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(wire.Port)))
	if err != nil {
		return nil, fmt.Errorf("listening for the lab: %w", err)
	}
	fmt.Printf("\n%s\n", wire.Ready)
	return listener, nil
}
