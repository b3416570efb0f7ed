package collect

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/nstest"
)

// What an earlier clean-up put on lo is told by its mark, and nothing else on lo is.
func TestExactRoutes(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "ip")
	for _, args := range [][]string{
		{"link", "add", "kube-ipvs0", "type", "bridge"},
		{"address", "add", "10.96.0.1/32", "dev", "kube-ipvs0"},
		{"address", "add", "10.96.0.2/32", "dev", "kube-ipvs0"},
		{"route", "replace", "local", "10.96.0.2", "dev", "kube-ipvs0", "table", "local", "proto", "kernel", "scope", "host", "src", "127.0.0.1"},
		{"route", "add", "local", "10.96.0.9", "dev", "lo", "table", "local", "proto", "207", "src", "127.0.0.1"},
		{"-6", "route", "add", "local", "fd00::9", "dev", "lo", "table", "local", "metric", "1", "proto", "207"},
		{"route", "add", "local", "10.96.0.10", "dev", "lo", "table", "local"},
		{"-6", "route", "add", "local", "fd00:1::/64", "dev", "lo", "table", "local", "proto", "207"},
	} {
		run(t, "", "ip", args...)
	}
	node := readExactly(t)
	address := netip.MustParseAddr
	want := []inventory.LocalRoute{
		{Address: address("10.96.0.9"), Link: "lo", Source: address("127.0.0.1"), Protocol: 207},
		{Address: address("fd00::9"), Link: "lo", Metric: 1, Protocol: 207},
	}
	compare := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, node.OwnRoutes, compare); diff != "" {
		t.Errorf("routes of an earlier clean-up (-want +got):\n%s", diff)
	}
	want = []inventory.LocalRoute{
		{Address: address("10.96.0.1"), Link: "kube-ipvs0", Source: address("10.96.0.1"), Protocol: 2},
		{Address: address("10.96.0.2"), Link: "kube-ipvs0", Source: address("127.0.0.1"), Protocol: 2},
	}
	if node.Link == nil || node.Link.Kind != "bridge" || len(node.Link.Addresses) != 2 {
		t.Fatalf("link %+v", node.Link)
	}
	if diff := cmp.Diff(want, node.Link.Routes, compare); diff != "" {
		t.Errorf("routes of the link (-want +got):\n%s", diff)
	}
	if !node.Link.Routes[0].SelfSource() || node.Link.Routes[1].SelfSource() {
		t.Error("the first route prefers the address itself, the second does not")
	}
}
