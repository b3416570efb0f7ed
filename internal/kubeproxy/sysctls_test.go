package kubeproxy_test

import (
	"slices"
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

func TestIPVSSysctls(t *testing.T) {
	always := map[string]string{
		"net/ipv4/vs/conntrack":                 "1",
		"net/ipv4/vs/expire_nodest_conn":        "1",
		"net/ipv4/vs/expire_quiescent_template": "1",
		"net/ipv4/ip_forward":                   "1",
		"net/ipv4/conf/all/arp_ignore":          "1",
		"net/ipv4/conf/all/arp_announce":        "2",
	}
	kernels := []struct {
		major, minor uint32
		reuse        bool
	}{{3, 10, false}, {4, 0, false}, {4, 1, true}, {4, 18, true}, {5, 8, true}, {5, 9, false}, {6, 1, false}, {0, 0, false}}
	for _, kernel := range kernels {
		got := kubeproxy.IPVSSysctls(kernel.major, kernel.minor)
		reuse := slices.ContainsFunc(got, func(s kubeproxy.Sysctl) bool {
			return s.Path == "net/ipv4/vs/conn_reuse_mode" && s.Value == "0" && s.Trace
		})
		if reuse != kernel.reuse {
			t.Errorf("%d.%d: conn_reuse_mode is set: %v, want %v", kernel.major, kernel.minor, reuse, kernel.reuse)
		}
		found := 0
		for _, sysctl := range got {
			if always[sysctl.Path] == sysctl.Value {
				found++
			}
		}
		if found != len(always) {
			t.Errorf("%d.%d: %d of the %d sysctls that are always set", kernel.major, kernel.minor, found, len(always))
		}
	}
}

func TestTracesAndStrictARP(t *testing.T) {
	for _, sysctl := range kubeproxy.IPVSSysctls(6, 1) {
		vs := sysctl.Path[:len("net/ipv4/vs/")] == "net/ipv4/vs/"
		arp := sysctl.Path == "net/ipv4/conf/all/arp_ignore" || sysctl.Path == "net/ipv4/conf/all/arp_announce"
		if sysctl.Trace != vs || sysctl.StrictARP != arp {
			t.Errorf("%+v is marked wrongly", sysctl)
		}
	}
}
