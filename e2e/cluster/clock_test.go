package cluster_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// Requests time out by the guest's clock, and kube-proxy syncs by it: it has to keep pace, also on a busy host.
func TestGuestClock(t *testing.T) {
	l := labtest.Start(t)
	g := labtest.Boot(t, l, lab.VM{Name: "clock", Kernel: "6.1"})
	before, began := uptime(t, g), time.Now()
	if _, err := g.Run(t.Context(), "timeout", "5", "sh", "-c", "while :; do :; done"); err != nil {
		t.Fatal(err)
	}
	passed, real := uptime(t, g)-before, time.Since(began).Seconds()
	if passed < 0.8*real || passed > 1.2*real {
		t.Errorf("the guest's clock moved by %.1f s in %.1f s", passed, real)
	}
}

// uptime is a guest's, in seconds.
func uptime(t *testing.T, g *lab.Guest) float64 {
	t.Helper()
	text, err := g.Output(t.Context(), "cat", "/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}
