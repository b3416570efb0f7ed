package cluster_test

import (
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/traffic"
)

// Requests from a pod, the node and another node while the node changes: nothing fails while nothing happens, a clean-up
// in the wrong order is seen, and each switch costs what it costs.
func TestTrafficOverSwitches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster.NodeSpec{Kernel: "6.1"})
	end(t, w.start(t, "ipvs"))
	w.mustServe(t)

	reports := w.during(t, func() {
		if _, err := cluster.Output(t.Context(), w.node, "ip", "link", "delete", "kube-ipvs0"); err != nil {
			t.Error(err)
		}
	})
	logReports(t, "kube-ipvs0 deleted first", reports)
	// What pods send is forwarded past IPVS once its address is no longer the node's; what the node sends is not.
	checkFailures(t, "kube-ipvs0 deleted first", reports, "pod/cluster", true)
	checkFailures(t, "kube-ipvs0 deleted first", reports, "pod/cluster6", true)
	checkFailures(t, "kube-ipvs0 deleted first", reports, "pod/udp", true)
	checkFailures(t, "kube-ipvs0 deleted first", reports, "/nodeport", false)
	checkFailures(t, "kube-ipvs0 deleted first", reports, "node/cluster6", false)

	p := w.start(t, "ipvs")
	w.mustServe(t)
	before := w.look(t)
	reports = w.during(t, func() {
		end(t, p)
		p = w.start(t, "iptables")
	})
	logReports(t, "ipvs -> iptables", reports)
	check(t, "requests that failed from ipvs to iptables, where nothing is cleaned", traffic.Failures(reports), 0)
	w.keep(t, 110, "ipvs -> iptables, with traffic", before, w.look(t), p.Output(),
		"no request failed, from a pod, the node or another node; the connections opened before went on")

	before = w.look(t)
	reports = w.during(t, func() {
		end(t, p)
		p = w.start(t, "nftables")
	})
	logReports(t, "to nftables", reports)
	w.keep(t, 111, "ipvs and iptables -> nftables, with traffic", before, w.look(t), p.Output(), "new connections failed from the start of kube-proxy to its first sync")
	w.mustServe(t)
	end(t, p)
}

// Between iptables and nftables a mapping lives in conntrack and outlives its rules. Both in a namespace of the host.
func TestIPTablesAndNFTables(t *testing.T) {
	t.Parallel()
	for _, spec := range []cluster.NodeSpec{{}, {Legacy: true}} {
		name := "nft"
		if spec.Legacy {
			name = "legacy"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, spec)
			w.thereAndBack(t)
		})
	}
}

func (w *world) thereAndBack(t *testing.T) {
	t.Helper()
	p := w.start(t, "iptables")
	w.mustServe(t)
	first := w.look(t)
	if first.NFT.Rules4+first.Legacy.Rules4 < 100 || (first.Legacy.Rules4 > 0) != w.spec.Legacy {
		t.Errorf("rules are not in the backend that the node has: %+v", first)
	}
	reports := w.during(t, func() {
		end(t, p)
		p = w.start(t, "nftables")
	})
	logReports(t, "iptables -> nftables", reports)
	checkFailures(t, "iptables -> nftables", reports, "/long", false)
	second := w.look(t)
	check(t, "iptables-nft", second.NFT, cluster.Rules{})
	check(t, "iptables-legacy", second.Legacy, cluster.Rules{})
	check(t, "nftables tables", len(second.Tables), 2)
	check(t, "route_localnet, which stays", second.Sysctls["conf/all/route_localnet"], "1")
	w.keep(t, 120, "iptables -> nftables, with traffic", first, second, p.Output(), "connections opened before went on")

	reports = w.during(t, func() {
		end(t, p)
		p = clustertest.StartProxy(t, w.node, cluster.ProxyConfig{Mode: "iptables"})
	})
	logReports(t, "nftables -> iptables", reports)
	checkFailures(t, "nftables -> iptables", reports, "/long", false)
	third := w.look(t)
	check(t, "nftables tables", len(third.Tables), 0)
	check(t, "iptables-nft", third.NFT, first.NFT)
	check(t, "iptables-legacy", third.Legacy, first.Legacy)
	w.mustServe(t)
	w.keep(t, 121, "nftables -> iptables, with traffic", second, third, p.Output(), "connections opened before went on")
	end(t, p)
}
