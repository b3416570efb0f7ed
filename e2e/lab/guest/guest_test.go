package main

import (
	"encoding/gob"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"offramp.dev/offramp/e2e/lab/wire"
	"offramp.dev/offramp/internal/nstest"
)

// ask has the server's code carry out a request, over a pipe instead of a network.
func ask(t *testing.T, request wire.Request, more func(*gob.Encoder)) (out, problems string, last wire.Reply) {
	t.Helper()
	host, guest := net.Pipe()
	go handle(guest)
	defer func() { _ = host.Close() }()
	if err := host.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	enc, dec := gob.NewEncoder(host), gob.NewDecoder(host)
	if err := enc.Encode(request); err != nil {
		t.Fatal(err)
	}
	if more != nil {
		more(enc)
	}
	for !last.Done {
		last = wire.Reply{}
		if err := dec.Decode(&last); err != nil {
			t.Fatal(err)
		}
		out, problems = out+string(last.Stdout), problems+string(last.Stderr)
	}
	return out, problems, last
}

func TestRun(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	out, problems, last := ask(t, wire.Request{Run: &wire.Run{
		Argv: []string{"sh", "-c", "cat; echo $V in $(pwd); echo err >&2; exit 3"}, Env: []string{"V=value"}, Dir: "/tmp", Stdin: []byte("in\n"),
	}}, nil)
	if out != "in\nvalue in /tmp\n" || problems != "err\n" || last.Exit != 3 || last.Error != "" {
		t.Errorf("out %q, problems %q, last %+v", out, problems, last)
	}
}

func TestRunEndsBySignal(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	_, _, last := ask(t, wire.Request{Run: &wire.Run{Argv: []string{"sleep", "1000"}}}, func(enc *gob.Encoder) {
		if err := enc.Encode(wire.Signal{Number: int(syscall.SIGTERM)}); err != nil {
			t.Fatal(err)
		}
	})
	if last.Exit != 128+15 {
		t.Errorf("exit status is %d, want 143", last.Exit)
	}
}

func TestHangingUpKillsTheGroup(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	host, guest := net.Pipe()
	ended := make(chan struct{})
	go func() { defer close(ended); handle(guest) }()
	if err := gob.NewEncoder(host).Encode(wire.Request{Run: &wire.Run{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}}}); err != nil {
		t.Fatal(err)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the program outlives its connection")
	}
}

func TestRequestsThatFail(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for name, request := range map[string]wire.Request{
		"nothing":    {},
		"no program": {Run: &wire.Run{}},
		"not there":  {Run: &wire.Run{Argv: []string{"no-such-program"}}},
		"no file":    {Get: &wire.Get{Path: "/no/such/file"}},
	} {
		if _, _, last := ask(t, request, nil); last.Error == "" {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPutAndGet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file")
	content := strings.Repeat("0123456789", 20_000)
	_, _, last := ask(t, wire.Request{Put: &wire.Put{Path: path, Mode: 0o600}}, func(enc *gob.Encoder) {
		if err := wire.SendChunks(enc, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	})
	if last.Error != "" {
		t.Fatal(last.Error)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v (%v)", info, err)
	}
	if out, _, last := ask(t, wire.Request{Get: &wire.Get{Path: path}}, nil); out != content || last.Error != "" {
		t.Errorf("%d bytes came back (%s)", len(out), last.Error)
	}
}

func TestGarbageIsNoRequest(t *testing.T) {
	host, guest := net.Pipe()
	go handle(guest)
	if err := host.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// The first byte says how many follow; the guest gives up once it has that many and cannot read them.
	_, _ = host.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 20)))
	if _, err := host.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("garbage was answered (%v)", err)
	}
}

func TestLinkUp(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedKernel(t, "veth")
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "any0", HardwareAddr: net.HardwareAddr{0x52, 0x54, 0, 0x18, 0, 7}}, PeerName: "any1"}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	if err := linkUp(wire.LinkMAC, wire.Link, "198.18.1.2/16"); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(wire.Link)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		t.Fatalf("%+v (%v)", link, err)
	}
	if addresses, err := netlink.AddrList(link, netlink.FAMILY_V4); err != nil || len(addresses) != 1 || addresses[0].IPNet.String() != "198.18.1.2/16" {
		t.Errorf("addresses are %v (%v)", addresses, err)
	}
	if err := linkUp(wire.ControlMAC, "x", "198.19.1.2/16"); err == nil {
		t.Error("a link that is not there came up")
	}
}

func TestAccount(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedKernel(t, "nfnetlink_acct")
	for range 2 { // the second time they are there already
		if err := account([]string{"one", "two"}); err != nil {
			t.Fatal(err)
		}
	}
}
