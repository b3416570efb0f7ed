package cleanup

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/nstest"
)

// The kernel loses entries of /proc/net/ip_vs where another network namespace has virtual servers. One that is there must
// not be taken for gone, nor for somebody else's.
func TestTheTableBesideAnotherNamespace(t *testing.T) {
	nstest.NeedTool(t, "ip", "ipvsadm")
	nstest.NeedKernel(t, "ip_vs", "ip_vs_rr")
	if !nstest.Enter(t) {
		return
	}
	want := ipvsTable{}
	var own, other strings.Builder
	for i := range 300 {
		address, protocol, option, real := fmt.Sprintf("10.96.%d.%d:80", i/200, i%200), uint16(unix.IPPROTO_TCP), "-t", "10.244.0.%d:80"
		if i%3 == 1 {
			protocol, option = unix.IPPROTO_UDP, "-u"
		}
		if i%3 == 2 {
			address, real = fmt.Sprintf("[fd00:10:96::%x]:80", i), "[fd00:10:244::%d]:80"
		}
		first, second := fmt.Sprintf(real, 1), fmt.Sprintf(real, 2)
		fmt.Fprintf(&own, "-A %s %s -s rr\n-a %s %s -r %s -m\n-a %s %s -r %s -g\n", option, address, option, address, first, option, address, second)
		fmt.Fprintf(&other, "-A -t 10.97.%d.%d:80 -s rr\n", i/200, i%200)
		want[ipvsKey{protocol, netip.MustParseAddrPort(address)}] = []string{first + " Masq", second + " Route"}
	}
	// The name of the other one is a mount of this test's own, with which it goes.
	for input, command := range map[string]string{own.String(): "ipvsadm -R", other.String(): "ip netns add other && ip netns exec other ipvsadm -R"} {
		program := exec.CommandContext(t.Context(), "sh", "-c", command)
		program.Stdin = strings.NewReader(input)
		if out, err := program.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	got, err := readIPVSTable("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, reals := range got {
		slices.Sort(reals)
	}
	if len(got) != 300 {
		t.Errorf("%d virtual servers, want 300", len(got))
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b ipvsKey) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}
