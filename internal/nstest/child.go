package nstest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const selfNetwork = "/proc/self/ns/net"

// isInside says whether this process was started for the named test or for one of its sub-tests. The second keeps a
// parent test that enters too from starting processes without end.
func isInside(name, marker string) bool {
	return marker == name || strings.HasPrefix(marker, name+"/")
}

// prepare makes the fresh namespaces usable. It refuses to go on in the namespace that the test came from: a marker
// that somebody set by hand must not let a test loose on the host.
func prepare(t *testing.T) {
	t.Helper()
	outside := os.Getenv(outsideMarker)
	here, err := os.Readlink(selfNetwork)
	if err != nil {
		t.Fatalf("nstest: reading this process' network namespace: %v", err)
	}
	if outside == "" || here == outside || os.Getpid() != 1 {
		t.Fatalf("nstest: %s is set, but this is not a fresh namespace", childMarker)
	}
	if err := privateMounts(); err != nil {
		t.Fatalf("nstest: %v", err)
	}
	if err := loopbackUp(); err != nil {
		t.Fatalf("nstest: %v", err)
	}
}

// privateMounts mounts the file systems that show the namespaces they were mounted in: without it /sys/class/net
// would list the host's links and /proc the host's processes.
func privateMounts() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, fs := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := unix.Mount(fs.kind, fs.at, fs.kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", fs.at, err)
		}
	}
	return nil
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
