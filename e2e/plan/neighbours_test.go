package plan_test

import (
	"path/filepath"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// The parameters of ARP are left alone beside each program that wants them too, and where it cannot be seen whether one
// runs; without one they go.
func TestARPBesideOthers(t *testing.T) {
	l := labtest.Start(t)
	idle := filepath.Join(t.TempDir(), "idle")
	if err := lab.GoBuild(t.Context(), "offramp.dev/offramp/e2e/plan/idle", idle); err != nil {
		t.Fatal(err)
	}
	g := bootAgent(t, l, "6.1", "arp")
	if err := lab.Restore(t.Context(), g, "ipvs-then-nftables"); err != nil {
		t.Fatal(err)
	}
	output(t, g, "modprobe ip_vs; echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
	const apply = agent + " cleanup apply --yes --no-connect --reset-sysctls --target none --assert-no-kube-proxy '" + nobody + "'"
	const hidden = "unshare -p -f -m sh -c \"mount -t proc proc /proc && " + apply + "\""
	for _, c := range []struct{ program, apply, arp string }{
		{"keepalived", apply, arpSet}, {"kube-vip", apply, arpSet}, {"kube-router", apply, arpSet}, {"speaker", apply, arpSet},
		{"speakers", apply, arpReset}, {"nobody out of sight", hidden, arpSet}, {"nobody", apply, arpReset},
	} {
		t.Run(c.program, func(t *testing.T) {
			output(t, g, setAgain)
			feed(t, g, "create KUBE-6-IPVS-IPS hash:ip family inet6\n", "ipset restore -exist")
			if !strings.HasPrefix(c.program, "nobody") {
				defer stop(t, runsAs(t, g, idle, c.program))
			}
			output(t, g, c.apply)
			if is := sysctlsOf(t, g); is != c.arp+ipvsReset+others {
				t.Errorf("after:\n%swant:\n%s", is, c.arp+ipvsReset+others)
			}
		})
	}
}

// runsAs runs a program under another name.
func runsAs(t *testing.T, g *lab.Guest, program, name string) *lab.Process {
	t.Helper()
	path := "/usr/local/bin/" + name
	if err := g.PutFile(t.Context(), path, program); err != nil {
		t.Fatal(err)
	}
	process, err := g.Start(t.Context(), lab.Command{Argv: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	return process
}
