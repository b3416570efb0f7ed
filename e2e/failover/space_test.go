package failover

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// space is a network namespace with one address on the test's bridge; nil is the test's own.
type space struct {
	file *os.File
	// port is the bridge's end of the way to it.
	port, address string
}

const (
	bridge = "hub"
	// here is the test's own address, where its DNS answers and people sit.
	here = "10.99.0.1"
)

func addBridge(t *testing.T) {
	t.Helper()
	mustRun(t, nil, "ip", "link", "add", bridge, "type", "bridge")
	mustRun(t, nil, "ip", "address", "add", here+"/16", "dev", bridge)
	mustRun(t, nil, "ip", "link", "set", bridge, "up")
}

// addSpace makes a namespace that can be reached at an address. number is different for each.
func addSpace(t *testing.T, number int, address string) *space {
	t.Helper()
	s := &space{port: fmt.Sprintf("port%d", number), address: address}
	if err := s.unshare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.file.Close() })
	// The other end moves by the descriptor of this process.
	other := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd())
	mustRun(t, nil, "ip", "link", "add", s.port, "type", "veth", "peer", "name", "eth0", "netns", other)
	mustRun(t, nil, "ip", "link", "set", s.port, "master", bridge, "up")
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"}, {"ip", "address", "add", address + "/16", "dev", "eth0"}, {"ip", "link", "set", "eth0", "up"},
	} {
		mustRun(t, s, argv...)
	}
	return s
}

// unshare makes the namespace in a thread that ends with it.
func (s *space) unshare() error {
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	return <-made
}

// do runs something in the namespace; what it starts stays there.
func (s *space) do(what func() error) error {
	if s == nil {
		return what()
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and nobody else finds himself in the namespace.
		runtime.LockOSThread()
		err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = what()
		}
		done <- err
	}()
	return <-done
}

// cut drops every packet to and from the namespace, without a word to anybody; mend lets them pass again.
func (s *space) cut(t *testing.T) {
	t.Helper()
	mustRun(t, nil, "ip", "link", "set", s.port, "nomaster")
}

func (s *space) mend(t *testing.T) {
	t.Helper()
	mustRun(t, nil, "ip", "link", "set", s.port, "master", bridge)
}
