package cluster_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
)

func TestFirstNode(t *testing.T) {
	t.Parallel()
	c, l := clustertest.Start(t)
	n := clustertest.AddNode(t, c, cluster.NodeSpec{Name: "first", Kernel: "6.1", Proxy: kube.Proxy137})
	p := clustertest.StartProxy(t, n, cluster.ProxyConfig{Mode: "ipvs"})
	if mode, err := p.Mode(t.Context()); err != nil || mode != "ipvs" {
		t.Errorf("kube-proxy says its mode is %q (%v), want ipvs", mode, err)
	}
	out, err := cluster.Output(t.Context(), n, "ipvsadm", "-Sn")
	if want := "-a -t 10.96.0.1:443 -r " + l.HostAddr() + ":6443 -m -w 1"; err != nil || !strings.Contains(out, want) {
		t.Errorf("ipvsadm -Sn says %q (%v), want a line %q", out, err, want)
	}
}
