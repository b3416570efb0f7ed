package cluster_test

import (
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
)

// nftables mode refuses an old kernel, but only after it has taken the old data plane down.
func TestKernelTooOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster.NodeSpec{Kernel: "5.10"})
	p := w.start(t, "ipvs")
	before := w.look(t)
	checkIPVSNode(t, before)
	end(t, p)
	w.mustServe(t)

	p, err := w.node.StartProxy(t.Context(), cluster.ProxyConfig{Mode: "nftables"})
	if err != nil {
		t.Fatal(err)
	}
	code, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	const reason = "kube-proxy in nftables mode requires kernel 5.13 or later"
	if code == 0 || !strings.Contains(p.Output(), reason) {
		t.Errorf("kube-proxy ended with status %d and without saying %q", code, reason)
	}
	after := w.look(t)
	check(t, "virtual servers", after.VirtualServers, 0)
	check(t, "kube-ipvs0", after.Link, false)
	check(t, "IPv4 sets", after.Sets4, 0)
	check(t, "IPv6 sets", after.Sets6, 17)
	check(t, "iptables-nft", after.NFT, cluster.Rules{})
	check(t, "nftables tables", len(after.Tables), 0)
	for _, report := range w.serve(t) {
		if strings.Contains(report.Target, "cluster") && report.Failures != report.Requests {
			t.Errorf("the node has no data plane, but %s was answered: %+v", report.Target, report)
		}
	}
	w.keep(t, 80, "ipvs -> nftables, kernel too old", before, after, p.Output(),
		"kube-proxy exits: "+reason, "the old data plane is gone: no request to a ClusterIP from the node or its pods is answered")
}

// A match that cannot load makes the first sync fail. kube-proxy calls itself healthy and never tries again, while IPVS
// carries the traffic.
func TestFirstSyncFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster.NodeSpec{Kernel: "6.1"})
	p := w.start(t, "ipvs")
	before := w.look(t)
	checkIPVSNode(t, before)
	end(t, p)
	if _, err := cluster.Output(t.Context(), w.node, "find", "/usr/lib", "-name", "libxt_statistic.so", "-exec", "rm", "{}", "+"); err != nil {
		t.Fatal(err)
	}

	p, err := w.node.StartProxy(t.Context(), cluster.ProxyConfig{Mode: "iptables"})
	if err != nil {
		t.Fatal(err)
	}
	failures := func() int { return strings.Count(p.Output(), `"Failed to execute iptables-restore"`) }
	eventually(t, 5*time.Minute, "both families' restores fail", func() bool { return failures() >= 2 })
	time.Sleep(40 * time.Second) // longer than syncPeriod, 30 s
	check(t, "failed restores 40 s later", failures(), 2)
	if mode, err := p.Mode(t.Context()); err != nil || mode != "iptables" {
		t.Errorf("kube-proxy says its mode is %q (%v), want iptables", mode, err)
	}
	if healthy, err := p.Healthy(t.Context()); err != nil || !healthy {
		t.Errorf("kube-proxy says it is healthy: %v (%v), want true", healthy, err)
	}
	metrics, err := p.Get(t.Context(), "http://127.0.0.1:10249/metrics")
	if err != nil || cluster.SyncedAt(metrics, "IPv4") != 0 || cluster.SyncedAt(metrics, "IPv6") != 0 {
		t.Errorf("kube-proxy says when it was in sync (%v), and never was", err)
	}
	after := w.look(t)
	check(t, "virtual servers", after.VirtualServers, before.VirtualServers)
	check(t, "addresses on kube-ipvs0", after.Addresses, before.Addresses)
	w.mustServe(t)
	w.keep(t, 90, "ipvs -> iptables, first sync fails", before, after, p.Output(),
		"mode iptables, healthz green, no time of a sync in its metrics, no second try within 40 s", "IPVS answers every request")
}
