package cluster_test

import (
	"slices"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

var bothTables = []string{"ip kube-proxy", "ip6 kube-proxy"}

// The supported switch: what kube-proxy cleans at its start in nftables mode, and what it leaves. Then back.
func TestIPVSToNFTables(t *testing.T) {
	t.Parallel()
	switchToNFTables(t, cluster.NodeSpec{Kernel: "6.1"})
}

func switchToNFTables(t *testing.T, spec cluster.NodeSpec) {
	w := newWorld(t, spec)
	p := w.start(t, "ipvs")
	before := w.look(t)
	checkIPVSNode(t, before)
	reports := w.during(t, func() {
		end(t, p)
		p = w.start(t, "nftables")
	})
	logReports(t, "ipvs -> nftables", reports)
	// A connection through IPVS does not survive the supported switch.
	checkFailures(t, "ipvs -> nftables", reports, "pod/long", true)
	checkFailures(t, "ipvs -> nftables", reports, "pod/cluster", true)
	w.mustServe(t)
	after := w.look(t)
	check(t, "virtual servers", after.VirtualServers, 0)
	check(t, "kube-ipvs0", after.Link, false)
	check(t, "IPv4 sets", after.Sets4, 0)
	check(t, "IPv6 sets, which no release removes", after.Sets6, 17)
	check(t, "entries of IPv6 sets", after.Entries6, before.Entries6)
	check(t, "iptables-nft", after.NFT, cluster.Rules{})
	check(t, "iptables-legacy", after.Legacy, cluster.Rules{})
	check(t, "nftables tables", slices.Equal(after.Tables, bothTables), true)
	for name, value := range before.Sysctls {
		check(t, "sysctl "+name, after.Sysctls[name], value)
	}
	w.keep(t, 10, "ipvs -> nftables", before, after, p.Output(),
		"a pod's connection through IPVS broke, and new ones failed until the first sync; then all worked")
	end(t, p)

	p = w.start(t, "ipvs")
	back := w.look(t)
	checkIPVSNode(t, back)
	check(t, "virtual servers after the way back", back.VirtualServers, before.VirtualServers)
	check(t, "rules after the way back", back.NFT, before.NFT)
	w.keep(t, 20, "nftables -> ipvs (roll-back)", after, back, p.Output())
	end(t, p)
}

// Upstream cleans nothing here: both modes' state lies side by side. What --cleanup makes of that is seen after it.
func TestIPVSToIPTables(t *testing.T) {
	t.Parallel()
	switchToIPTables(t, cluster.NodeSpec{Kernel: "6.1"})
}

func switchToIPTables(t *testing.T, spec cluster.NodeSpec) {
	w := newWorld(t, spec)
	p := w.start(t, "ipvs")
	before := w.look(t)
	checkIPVSNode(t, before)
	end(t, p)

	p = w.start(t, "iptables")
	after := w.look(t)
	check(t, "virtual servers", after.VirtualServers, before.VirtualServers)
	check(t, "real servers", after.RealServers, before.RealServers)
	check(t, "addresses on kube-ipvs0", after.Addresses, before.Addresses)
	check(t, "IPv4 sets", after.Sets4, before.Sets4)
	check(t, "entries of IPv4 sets", after.Entries4, before.Entries4)
	check(t, "entries of IPv6 sets", after.Entries6, before.Entries6)
	if after.NFT.Rules4+after.Legacy.Rules4 < before.NFT.Rules4+before.Legacy.Rules4+100 {
		t.Errorf("iptables mode added few rules: %+v, before %+v", after.NFT, before.NFT)
	}
	w.keep(t, 30, "ipvs -> iptables", before, after, p.Output())
	end(t, p)

	log, code := w.cleanup(t)
	cleaned := w.look(t)
	check(t, "exit status of --cleanup", code, 1)
	check(t, "virtual servers after --cleanup", cleaned.VirtualServers, 0)
	check(t, "kube-ipvs0 after --cleanup", cleaned.Link, false)
	check(t, "IPv4 sets after --cleanup", cleaned.Sets4, 0)
	check(t, "IPv6 sets after --cleanup", cleaned.Sets6, 17)
	if cleaned.NFT.Rules4+cleaned.Legacy.Rules4 == 0 {
		t.Error("one --cleanup removed all rules of a node with both modes' state; two were needed so far")
	}
	w.keep(t, 40, "ipvs -> iptables -> --cleanup", after, cleaned, log, "exit status 1")

	log, code = w.cleanup(t)
	twice := w.look(t)
	check(t, "iptables-nft after the second --cleanup", twice.NFT, cluster.Rules{})
	check(t, "iptables-legacy after the second --cleanup", twice.Legacy, cluster.Rules{})
	check(t, "IPv6 sets after the second --cleanup", twice.Sets6, 17)
	w.keep(t, 41, "the same, --cleanup again", cleaned, twice, log, exitNote(code))
}
