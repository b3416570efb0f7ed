package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

// kube-proxy is taken away: nothing is removed and IPVS goes on. Then --cleanup on a node that only ever knew ipvs mode.
func TestIPVSToRemoved(t *testing.T) {
	t.Parallel()
	removeProxy(t, cluster.NodeSpec{Kernel: "6.1", SecondNIC: true})
}

func removeProxy(t *testing.T, spec cluster.NodeSpec) {
	w := newWorld(t, spec)
	p := w.start(t, "ipvs")
	before := w.look(t)
	checkIPVSNode(t, before)
	end(t, p)

	after := w.look(t)
	checkSame(t, "the node", after, before)
	w.mustServe(t)
	w.keep(t, 50, "ipvs -> kube-proxy removed", before, after, "", "new connections to Services from a pod, the node and another node work on")

	log, code := w.cleanup(t)
	cleaned := w.look(t)
	check(t, "exit status of --cleanup", code, 1)
	check(t, "virtual servers", cleaned.VirtualServers, 0)
	check(t, "kube-ipvs0", cleaned.Link, false)
	check(t, "IPv4 sets", cleaned.Sets4, 0)
	check(t, "IPv6 sets", cleaned.Sets6, 17)
	check(t, "entries of IPv6 sets", cleaned.Entries6, before.Entries6)
	check(t, "iptables-nft", cleaned.NFT, cluster.Rules{})
	check(t, "iptables-legacy", cleaned.Legacy, cluster.Rules{})
	for name, value := range before.Sysctls {
		check(t, "sysctl "+name, cleaned.Sysctls[name], value)
	}
	w.keep(t, 60, "ipvs -> --cleanup", before, cleaned, log, exitNote(code))
}

// The other way round nothing is cleaned either.
func TestIPTablesToIPVS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster.NodeSpec{Kernel: "6.1"})
	p := w.start(t, "iptables")
	before := w.look(t)
	check(t, "virtual servers of a node that never knew ipvs mode", before.VirtualServers, 0)
	check(t, "kube-ipvs0 of a node that never knew ipvs mode", before.Link, false)
	end(t, p)

	p = w.start(t, "ipvs")
	checkServesAPI(t, w, p)
	after := w.look(t)
	checkIPVSNode(t, after)
	if after.NFT.Chains4 < before.NFT.Chains4 || after.NFT.Chains6 < before.NFT.Chains6 {
		t.Errorf("chains of iptables mode went away: %+v, before %+v", after.NFT, before.NFT)
	}
	w.mustServe(t)
	w.keep(t, 70, "iptables -> ipvs", before, after, p.Output())
	end(t, p)
}

// checkServesAPI looks for the virtual server of the API server's own Service, and asks kube-proxy for its mode.
func checkServesAPI(t *testing.T, w *world, p *cluster.Proxy) {
	t.Helper()
	if mode, err := p.Mode(t.Context()); err != nil || mode != "ipvs" {
		t.Errorf("kube-proxy says its mode is %q (%v), want ipvs", mode, err)
	}
	out, err := cluster.Output(t.Context(), w.node, "ipvsadm", "-Sn")
	if want := "-a -t 10.96.0.1:443 -r " + w.lab.HostAddr() + ":6443 -m -w 1"; err != nil || !strings.Contains(out, want) {
		t.Errorf("ipvsadm -Sn says %q (%v), want a line %q", out, err, want)
	}
}

// cleanup runs kube-proxy --cleanup on the node and returns its log and its exit status.
func (w *world) cleanup(t *testing.T) (log string, code int) {
	t.Helper()
	p, err := w.node.StartProxy(t.Context(), cluster.ProxyConfig{Mode: "ipvs", StrictARP: true, Args: []string{"--cleanup"}})
	if err != nil {
		t.Fatal(err)
	}
	code, err = p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	checkLog(t, p.Output())
	return p.Output(), code
}

func exitNote(code int) string { return fmt.Sprintf("exit status %d", code) }

func checkSame(t *testing.T, what string, got, want cluster.State) {
	t.Helper()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%s changed:\n%+v\nwas\n%+v", what, got, want)
	}
}
