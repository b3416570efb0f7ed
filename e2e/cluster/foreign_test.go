package cluster_test

import (
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
)

// foreignServers are virtual servers of somebody else: as keepalived makes them, and one by firewall mark.
const foreignServers = `-A -t 198.18.250.1:41808 -s wlc
-a -t 198.18.250.1:41808 -r 198.18.250.2:80 -m -w 1
-A -f 7 -s rr
-a -f 7 -r 198.18.250.3:80 -m -w 1
`

// foreign says which of the foreign virtual servers are there: "tcp", "fwmark", both or none.
func (w *world) foreign(t *testing.T) string {
	t.Helper()
	saved, err := cluster.Output(t.Context(), w.node, "ipvsadm", "-Sn")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	if strings.Contains(saved, "-A -t 198.18.250.1:41808 ") {
		found = append(found, "tcp")
	}
	if strings.Contains(saved, "-A -f 7 ") {
		found = append(found, "fwmark")
	}
	return strings.Join(found, " ")
}

// addForeign adds those of the foreign virtual servers that are missing.
func (w *world) addForeign(t *testing.T) {
	t.Helper()
	there := w.foreign(t)
	var missing strings.Builder
	for line := range strings.Lines(foreignServers) {
		kind := "tcp"
		if strings.Contains(line, " -f ") {
			kind = "fwmark"
		}
		if !strings.Contains(there, kind) {
			missing.WriteString(line)
		}
	}
	if result, err := w.node.RunInput(t.Context(), []byte(missing.String()), "ipvsadm", "-R"); err != nil || result.ExitCode != 0 {
		t.Fatalf("adding foreign virtual servers: %v: %s", err, result.Stderr)
	}
	check(t, "foreign virtual servers", w.foreign(t), "tcp fwmark")
}

// A virtual server has no owner, so kube-proxy takes what others made for its own.
func TestForeignVirtualServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster.NodeSpec{Kernel: "6.1"})
	end(t, w.start(t, "ipvs"))
	for i, step := range []struct{ mode, transition, left string }{
		{"ipvs", "restart in ipvs mode beside foreign virtual servers", "fwmark"},
		{"iptables", "ipvs -> iptables beside foreign virtual servers", "tcp fwmark"},
		{"nftables", "iptables -> nftables beside foreign virtual servers", ""},
	} {
		w.addForeign(t)
		before := w.look(t)
		p := w.start(t, step.mode)
		check(t, "foreign virtual servers left: "+step.transition, w.foreign(t), step.left)
		w.keep(t, 100+i, step.transition, before, w.look(t), p.Output(), "left of the foreign tcp and fwmark ones: "+orNone(step.left))
		end(t, p)
	}

	p := w.start(t, "nftables")
	w.addForeign(t)
	before := w.look(t)
	time.Sleep(5 * time.Second)
	check(t, "foreign virtual servers beside a live nftables mode", w.foreign(t), "tcp fwmark")
	end(t, p)
	p = w.start(t, "nftables")
	check(t, "foreign virtual servers after a restart in nftables mode", w.foreign(t), "")
	w.keep(t, 103, "restart in nftables mode beside foreign virtual servers", before, w.look(t), p.Output(),
		"added under a live nftables mode they stayed, until its restart removed both")
	end(t, p)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
