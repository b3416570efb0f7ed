package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"offramp.dev/offramp/internal/nstest"
)

// vipCase is a family with a VIP on kube-ipvs0 and an address of the node's own.
type vipCase struct{ name, vip, own, family string }

func vipCases() []vipCase {
	return []vipCase{
		{"IPv4", "10.96.0.1", "192.0.2.10", "-4"},
		{"IPv6", "fd00:10:96::1", "2001:db8::10", "-6"},
	}
}

// enterWithVIPs makes a node with the VIPs on kube-ipvs0, which is down as kube-proxy leaves it.
func enterWithVIPs(t *testing.T) bool {
	t.Helper()
	if !nstest.Enter(t) {
		return false
	}
	nstest.NeedKernel(t, "dummy")
	nstest.NeedTool(t, "ip")
	tool(t, "ip", "link", "add", "eth0", "type", "dummy")
	tool(t, "ip", "link", "set", "eth0", "up")
	tool(t, "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	for _, c := range vipCases() {
		tool(t, "ip", "addr", "add", c.own+"/"+map[string]string{"-4": "24", "-6": "64"}[c.family], "dev", "eth0", "nodad")
		tool(t, "ip", "addr", "add", c.vip+"/"+map[string]string{"-4": "32", "-6": "128"}[c.family], "dev", "kube-ipvs0")
		// What is sent to a VIP is routed before nftables gives it another destination.
		tool(t, "ip", c.family, "route", "add", "default", "dev", "eth0")
	}
	return true
}

func tool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// localRoutes is the table local in the words of ip.
func localRoutes(t *testing.T, family string) string {
	t.Helper()
	return tool(t, "ip", family, "-d", "route", "show", "table", "local")
}

// sourceOf is the address that the node uses towards a VIP.
func sourceOf(t *testing.T, vip string) string {
	t.Helper()
	connection, err := net.Dial("udp", net.JoinHostPort(vip, "9"))
	if err != nil {
		t.Fatalf("connect to %s: %v", vip, err)
	}
	defer func() { _ = connection.Close() }()
	return netip.MustParseAddrPort(connection.LocalAddr().String()).Addr().String()
}

func openTestSources(t *testing.T) *sources {
	t.Helper()
	handle, err := openRoute()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Close)
	s, err := openSources(handle)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSourceIsSetAndPutBack(t *testing.T) {
	if !enterWithVIPs(t) {
		return
	}
	for _, c := range vipCases() {
		t.Run(c.name, func(t *testing.T) {
			vip, own := netip.MustParseAddr(c.vip), netip.MustParseAddr(c.own)
			before := localRoutes(t, c.family)
			if got := sourceOf(t, c.vip); got != c.vip {
				t.Fatalf("the source is %s before the change, want the VIP itself", got)
			}
			s := openTestSources(t)
			for range 2 { // the second time finds it done
				if err := s.set(vip, own); err != nil {
					t.Fatal(err)
				}
				if got := sourceOf(t, c.vip); got != c.own {
					t.Errorf("the source is %s, want %s", got, c.own)
				}
				if c.family == "-6" {
					break
				}
			}
			if err := s.reset(vip); err != nil {
				t.Fatal(err)
			}
			// An IPv6 address that came anew is not chosen as a source before the kernel's own check of it is over.
			for wait := 0; sourceOf(t, c.vip) != c.vip && wait < 50; wait++ {
				time.Sleep(100 * time.Millisecond)
			}
			if got := sourceOf(t, c.vip); got != c.vip {
				t.Errorf("the source is %s after it was put back, want the VIP itself", got)
			}
			if diff := cmp.Diff(before, localRoutes(t, c.family)); diff != "" {
				t.Errorf("before (-), put back (+):\n%s", diff)
			}
		})
	}
}

// An address that is also on another link is left alone: replacing its route could take the other's.
func TestSourceOfASharedAddressIsLeftAlone(t *testing.T) {
	if !enterWithVIPs(t) {
		return
	}
	tool(t, "ip", "addr", "add", "10.96.0.1/32", "dev", "eth0")
	before := localRoutes(t, "-4")
	s := openTestSources(t)
	if err := s.set(netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("192.0.2.10")); !errors.Is(err, errNoPlainRoute) {
		t.Errorf("error %v, want %v", err, errNoPlainRoute)
	}
	if diff := cmp.Diff(before, localRoutes(t, "-4")); diff != "" {
		t.Errorf("before (-), after (+):\n%s", diff)
	}
}

// What kube-proxy in nftables mode does for a VIP: the connection that was opened with the VIP as its source hangs once the
// link is gone; the one that was opened after the change of source goes on, and nothing of the change stays behind.
func TestConnectionsSurviveTheLink(t *testing.T) {
	if !enterWithVIPs(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	for _, c := range vipCases() {
		t.Run(c.name, func(t *testing.T) { surviveTheLink(t, c) })
	}
}

func surviveTheLink(t *testing.T, c vipCase) {
	listener := echoOn(t, net.JoinHostPort(c.own, "0"))
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	family := map[string]string{"-4": "ip", "-6": "ip6"}[c.family]
	tool(t, "nft", fmt.Sprintf("add table %s t; add chain %s t o { type nat hook output priority -100; }; "+
		"add rule %s t o %s daddr %s tcp dport 80 dnat to %s", family, family, family, family, c.vip, net.JoinHostPort(c.own, fmt.Sprint(port))))
	vip := netip.MustParseAddr(c.vip)
	early := dial(t, c.vip)
	s := openTestSources(t)
	if err := s.set(vip, netip.MustParseAddr(c.own)); err != nil {
		t.Fatal(err)
	}
	late := dial(t, c.vip)
	if err := echo(early); err != nil {
		t.Errorf("the early connection fails before the link is gone: %v", err)
	}
	address := map[netip.Addr]bool{vip: true}
	if count, err := socketsFrom("/proc", address); err != nil || count == 0 {
		t.Errorf("%d sockets with the VIP as their own, error %v, want the early one", count, err)
	}
	if c.family == "-4" {
		tool(t, "ip", "link", "add", "keeper", "type", "dummy") // another link must not be taken for it
	}
	if _, err := deleteIPVSLink(s.handle, s.link); err != nil {
		t.Fatal(err)
	}
	if err := s.deleteOwn(vip); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(localRoutes(t, c.family), c.vip) {
		t.Errorf("a route is left behind:\n%s", localRoutes(t, c.family))
	}
	if err := echo(late); err != nil {
		t.Errorf("the late connection: %v", err)
	}
	if err := echo(early); err == nil {
		t.Error("the early connection goes on: the kernel does not need the change of source, and this test proves nothing")
	}
	closed, err := closeSockets(address)
	if err != nil || closed == 0 {
		t.Errorf("%d sockets closed, error %v", closed, err)
	}
	if _, err := early.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the closed connection says %v, want an error at once", err)
	}
	if err := echo(late); err != nil {
		t.Errorf("the late connection was closed too: %v", err)
	}
	remakeLink(t, s, c)
}

// remakeLink makes the link anew for the next case.
func remakeLink(t *testing.T, _ *sources, _ vipCase) {
	t.Helper()
	tool(t, "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	for _, c := range vipCases() {
		tool(t, "ip", "addr", "add", c.vip+"/"+map[string]string{"-4": "32", "-6": "128"}[c.family], "dev", "kube-ipvs0")
	}
}

func echoOn(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(connection, connection); _ = connection.Close() }()
		}
	}()
	return listener
}

func dial(t *testing.T, vip string) net.Conn {
	t.Helper()
	connection, err := net.DialTimeout("tcp", net.JoinHostPort(vip, "80"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := echo(connection); err != nil {
		t.Fatalf("a new connection to %s: %v", vip, err)
	}
	return connection
}

func echo(connection net.Conn) error {
	if err := connection.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(connection, make([]byte, 1))
	return err
}

// A link of kube-proxy's name that is no dummy link is never deleted.
func TestOnlyADummyLinkIsDeleted(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "ip")
	tool(t, "ip", "link", "add", "kube-ipvs0", "type", "bridge")
	handle, err := openRoute()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	link, err := netlink.LinkByName("kube-ipvs0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deleteIPVSLink(handle, link.Attrs().Index); !errors.Is(err, errNotOurs) {
		t.Errorf("error %v, want %v", err, errNotOurs)
	}
	if existed, err := deleteIPVSLink(handle, 9999); existed || err != nil {
		t.Errorf("a link that is gone: %v, %v", existed, err)
	}
	if _, err := findIPVSLink(handle); !errors.Is(err, errNotOurs) {
		t.Errorf("error %v, want %v", err, errNotOurs)
	}
	tool(t, "ip", "link", "show", "kube-ipvs0")
}
