package kubeproxy_test

import (
	"net/netip"
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

// server is a virtual server whose two real servers masquerade.
func server(protocol, address string) kubeproxy.VirtualServer {
	return kubeproxy.VirtualServer{
		Protocol: protocol, Address: netip.MustParseAddrPort(address), OnlyMasquerading: true, RealServers: 2,
	}
}

func direct(s kubeproxy.VirtualServer) kubeproxy.VirtualServer {
	s.OnlyMasquerading = false
	return s
}

func empty(s kubeproxy.VirtualServer) kubeproxy.VirtualServer {
	s.RealServers = 0
	return s
}

func TestVirtualServerOwner(t *testing.T) {
	sets := savedSets{members: map[string][]string{
		"KUBE-CLUSTER-IP":            {"10.96.0.1,tcp:443", "10.96.0.10,udp:53"},
		"KUBE-6-LOAD-BALANCER":       {"fd00::5,tcp:80"},
		"KUBE-LOOP-BACK":             {"10.244.0.9,tcp:80,10.244.0.9"},
		"KUBE-NODE-PORT-TCP":         {"30080"},
		"KUBE-6-NODE-PORT-LOCAL-UDP": {"30090"},
		"KUBE-NODE-PORT-SCTP-HASH":   {"192.0.2.1,sctp:30132"},
	}}
	addresses := savedAddresses{
		ipvs: map[netip.Addr]bool{netip.MustParseAddr("10.96.0.1"): true, netip.MustParseAddr("10.96.7.7"): true},
		node: map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("2001:db8::1"): true},
	}
	cases := []struct {
		name   string
		server kubeproxy.VirtualServer
		want   string
	}{
		{"cluster IP", server("TCP", "10.96.0.1:443"), "kube-proxy/ipvs"},
		{"cluster IP without real servers", empty(server("TCP", "10.96.0.1:443")), "kube-proxy/ipvs"},
		{"load balancer, IPv6", server("TCP", "[fd00::5]:80"), "kube-proxy/ipvs"},
		{"real server is routed", direct(server("TCP", "10.96.0.1:443")), "unknown"},
		{"other protocol, on the link", server("UDP", "10.96.0.1:443"), "unknown"},
		{"other port, on the link", server("TCP", "10.96.0.1:444"), "unknown"},
		{"only on the link", server("TCP", "10.96.7.7:80"), "unknown"},
		{"other protocol", server("TCP", "10.96.0.10:53"), "foreign:unidentified"},
		{"an endpoint is no Service", server("TCP", "10.244.0.9:80"), "foreign:unidentified"},
		{"node port", server("TCP", "192.0.2.1:30080"), "kube-proxy/ipvs"},
		{"node port, real server is routed", direct(server("TCP", "192.0.2.1:30080")), "unknown"},
		{"node port of the other protocol", server("UDP", "192.0.2.1:30080"), "foreign:unidentified"},
		{"node port of the other family", server("TCP", "[2001:db8::1]:30080"), "foreign:unidentified"},
		{"node port, IPv6, UDP", server("UDP", "[2001:db8::1]:30090"), "kube-proxy/ipvs"},
		{"node port, SCTP", server("SCTP", "192.0.2.1:30132"), "kube-proxy/ipvs"},
		{"node port on no address of the node", server("TCP", "198.51.100.9:30080"), "foreign:unidentified"},
		{"keepalived", direct(server("TCP", "192.0.2.1:6443")), "foreign:unidentified"},
		{"probe", empty(server("TCP", "198.51.100.0:20000")), "kube-proxy/ipvs"},
		{"probe's address with real servers", server("TCP", "198.51.100.0:20000"), "foreign:unidentified"},
		{"probe's address, UDP", empty(server("UDP", "198.51.100.0:20000")), "foreign:unidentified"},
		{"firewall mark", kubeproxy.VirtualServer{Protocol: "FWM", OnlyMasquerading: true}, "foreign:fwmark"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, reason := kubeproxy.VirtualServerOwner(c.server, sets, addresses, nil)
			if string(got) != c.want || reason == "" {
				t.Errorf("owner is %s (%s), want %s", got, reason, c.want)
			}
		})
	}
}

func TestVirtualServerOwnerWithoutSetsOrAddresses(t *testing.T) {
	full := savedSets{members: map[string][]string{"KUBE-CLUSTER-IP": {"10.96.0.1,tcp:443"}}}
	cases := []struct {
		name      string
		server    kubeproxy.VirtualServer
		ports     kubeproxy.ServicePorts
		addresses kubeproxy.LocalAddresses
		want      string
	}{
		{"no sets", server("TCP", "10.96.0.1:443"), nil, savedAddresses{}, "unknown"},
		{"no sets, probe", empty(server("TCP", "198.51.100.0:20000")), nil, nil, "kube-proxy/ipvs"},
		{"no sets, mark", kubeproxy.VirtualServer{Protocol: "FWM"}, nil, nil, "foreign:fwmark"},
		{"no addresses, in the sets", server("TCP", "10.96.0.1:443"), full, nil, "kube-proxy/ipvs"},
		{"no addresses, not in the sets", server("TCP", "192.0.2.1:30080"), full, nil, "unknown"},
	}
	for _, c := range cases {
		if got, _ := kubeproxy.VirtualServerOwner(c.server, c.ports, c.addresses, nil); string(got) != c.want {
			t.Errorf("%s: owner is %s, want %s", c.name, got, c.want)
		}
	}
}

// What kube-proxy was told to leave alone is somebody else's, whatever speaks for kube-proxy.
func TestVirtualServersInExcludedCIDRs(t *testing.T) {
	sets := savedSets{members: map[string][]string{"KUBE-CLUSTER-IP": {"10.103.97.1,tcp:6443", "10.96.0.1,tcp:443"}}}
	excluded := []netip.Prefix{netip.MustParsePrefix("10.103.97.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd00:ee::/64")}
	cases := []struct {
		name   string
		server kubeproxy.VirtualServer
		ports  kubeproxy.ServicePorts
		want   string
	}{
		{"in them and in the sets", server("TCP", "10.103.97.1:6443"), sets, "foreign:excluded"},
		{"in them, sets unreadable", server("TCP", "10.103.97.2:6443"), nil, "foreign:excluded"},
		{"IPv6", server("UDP", "[fd00:ee::1]:53"), sets, "foreign:excluded"},
		{"IPv6, just outside", server("UDP", "[fd00:ee:0:1::1]:53"), sets, "foreign:unidentified"},
		{"the probe's address", empty(server("TCP", "198.51.100.0:20000")), sets, "foreign:excluded"},
		{"outside", server("TCP", "10.96.0.1:443"), sets, "kube-proxy/ipvs"},
		{"a mark has no address", kubeproxy.VirtualServer{Protocol: "FWM"}, sets, "foreign:fwmark"},
	}
	for _, c := range cases {
		if got, _ := kubeproxy.VirtualServerOwner(c.server, c.ports, savedAddresses{}, excluded); string(got) != c.want {
			t.Errorf("%s: owner is %s, want %s", c.name, got, c.want)
		}
	}
}

// A sync that failed leaves sets that name nothing: then a node port's virtual server is nobody else's either.
func TestVirtualServersBesideSetsThatNameNothing(t *testing.T) {
	there := []kubeproxy.Set{{Name: "KUBE-6-NODE-PORT-TCP", Type: "bitmap:port"}, {Name: "KUBE-6-CLUSTER-IP", Type: "hash:ip,port", Family: kubeproxy.IPv6}}
	addresses := savedAddresses{node: map[netip.Addr]bool{netip.MustParseAddr("2001:db8::1"): true, netip.MustParseAddr("192.0.2.1"): true}}
	filled := savedSets{sets: there, members: map[string][]string{"KUBE-6-CLUSTER-IP": {"fd00::1,tcp:443"}}}
	cases := []struct {
		name   string
		server kubeproxy.VirtualServer
		sets   savedSets
		want   string
	}{
		{"node address", server("TCP", "[2001:db8::1]:30080"), savedSets{sets: there}, "unknown"},
		{"routed: kube-proxy makes none", direct(server("TCP", "[2001:db8::1]:30080")), savedSets{sets: there}, "foreign:unidentified"},
		{"no address of the node", server("TCP", "[2001:db8::9]:30080"), savedSets{sets: there}, "foreign:unidentified"},
		{"the other family has no sets", server("TCP", "192.0.2.1:30080"), savedSets{sets: there}, "foreign:unidentified"},
		{"no set at all", server("TCP", "[2001:db8::1]:30080"), savedSets{}, "foreign:unidentified"},
		{"sets that name Services, none a node port", server("TCP", "[2001:db8::1]:6443"), filled, "foreign:unidentified"},
	}
	for _, c := range cases {
		if got, _ := kubeproxy.VirtualServerOwner(c.server, c.sets, addresses, nil); string(got) != c.want {
			t.Errorf("%s: owner is %s, want %s", c.name, got, c.want)
		}
	}
}

func TestFamilyOf(t *testing.T) {
	cases := map[netip.Addr]kubeproxy.Family{
		{}:                                      kubeproxy.FamilyAny,
		netip.MustParseAddr("192.0.2.1"):        kubeproxy.IPv4,
		netip.MustParseAddr("::ffff:192.0.2.1"): kubeproxy.IPv4,
		netip.MustParseAddr("fd00::1"):          kubeproxy.IPv6,
	}
	for address, want := range cases {
		if got := kubeproxy.FamilyOf(address); got != want {
			t.Errorf("family of %s is %d, want %d", address, got, want)
		}
	}
}
