package cleanup

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A look at three flows through 10.96.0.10:53 and one through a server that stays, as ip_vs_conn_seq_show prints them.
func TestFlowsOfUDP(t *testing.T) {
	servers := map[ipvsKey]bool{{unix.IPPROTO_UDP, netip.MustParseAddrPort("10.96.0.10:53")}: true}
	flow := func(port, left int) string {
		return fmt.Sprintf("UDP 0AF40105 %04X 0A60000A 0035 0AF40202 0035 UDP     %7d\n", port, left)
	}
	other := "UDP 0AF40105 9C41 0A60000B 0035 0AF40202 0035 UDP         300\n"
	affinity := "UDP 0AF40105 0000 0A60000A 0035 0AF40202 0035 UDP       10800\n"
	flows, start := &udpFlows{}, time.Unix(1800000000, 0)
	for _, c := range []struct {
		after time.Duration
		text  string
		want  uint64
		why   string
	}{
		{0, flow(1, 300) + flow(2, 250) + other + affinity, 2, "until it can be told, both may have packets"},
		{time.Second, flow(1, 299) + flow(2, 249) + flow(3, 300) + other, 2, "too soon to tell, and the third came later"},
		{3 * time.Second, flow(1, 300) + flow(2, 247) + flow(3, 298) + other, 1, "the first had packets, the second none"},
		{3500 * time.Millisecond, flow(1, 299) + flow(2, 246) + flow(3, 297), 1, "told not long ago"},
		{6 * time.Second, flow(1, 297) + flow(2, 300) + flow(3, 295), 1, "the first has ended, the second has packets again"},
		{9 * time.Second, flow(1, 294) + flow(2, 297) + flow(3, 292), 0, "all have ended"},
		{12 * time.Second, flow(1, 291) + flow(3, 300), 1, "one that came later has packets"},
		{15 * time.Second, "", 0, "none is left"},
	} {
		flows.look(start.Add(c.after))
		got, err := countConnections(strings.NewReader("Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"+c.text), servers, flows)
		if got != c.want || err != nil {
			t.Errorf("after %s: %d (%v), want %d: %s", c.after, got, err, c.want, c.why)
		}
	}
	flows.look(start)
	if _, err := countConnections(strings.NewReader(strings.Replace(flow(1, 1), "      1\n", "soon\n", 1)), servers, flows); err == nil {
		t.Error("a time that is none was taken for one")
	}
}
