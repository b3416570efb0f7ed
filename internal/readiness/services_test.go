package readiness_test

import (
	"testing"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"github.com/google/go-cmp/cmp"
)

const (
	servers   = offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS
	addresses = offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES
)

func TestWhatNoServiceExplains(t *testing.T) {
	index := readiness.IndexServices([]*offrampv1.ClusterService{
		{Name: "web", ClusterIps: []string{"10.96.0.10", "fd00::a"}, ExternalIps: []string{"203.0.113.9"}, LoadBalancerIps: []string{"198.51.100.1"},
			Ports: []*offrampv1.ClusterServicePort{{Protocol: "TCP", Port: 80}, {Protocol: "UDP", Port: 53}}},
		{Name: "headless", Headless: true, ClusterIps: []string{"10.96.0.99"}},
		{Name: "other", OtherProxy: true, ClusterIps: []string{"10.96.0.98"}, Ports: []*offrampv1.ClusterServicePort{{Protocol: "TCP", Port: 80}}},
		{Name: "broken", ClusterIps: []string{"", "None", "garbage"}},
	})
	cases := []struct {
		list        offrampv1.ListName
		items, want []string
	}{
		{servers, []string{"TCP 10.96.0.10:80", "UDP 10.96.0.10:53", "TCP [fd00::a]:80", "TCP 203.0.113.9:80", "TCP 198.51.100.1:80", "FWM 7"}, nil},
		{servers, []string{"TCP 10.96.0.10:81", "UDP 10.96.0.10:80", "TCP 10.96.0.98:80", "SCTP 10.96.0.10:80", "garbage", ""},
			[]string{"TCP 10.96.0.10:81", "UDP 10.96.0.10:80", "TCP 10.96.0.98:80", "SCTP 10.96.0.10:80", "garbage", ""}},
		{addresses, []string{"10.96.0.10", "fd00::a", "198.51.100.1"}, nil},
		{addresses, []string{"10.96.0.99", "10.96.0.11", "x"}, []string{"10.96.0.99", "10.96.0.11", "x"}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, index.Unexplained(c.list, c.items)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.items, diff)
		}
	}
}

func TestUnexplainedRules(t *testing.T) {
	stale := []string{"TCP 10.96.0.77:80"}
	node := func(mode offrampv1.ProxyMode) *testNode {
		n := clean(mode)
		n.ipvs.List = facts.ListDigest(servers, stale)
		n.link = &offrampv1.IpvsLinkFacts{LinkType: "dummy", Owner: "kube-proxy/ipvs", Ipv4Addresses: 1, List: facts.ListDigest(addresses, []string{"10.96.0.77"})}
		return n
	}
	foreign := node(ipvsMode)
	foreign.ipvs.Samples = append(foreign.ipvs.Samples, &offrampv1.VirtualServer{Protocol: "TCP", Address: "10.96.0.77", Port: 80, Owner: "foreign:unidentified"})
	compared := func(items ...string) readiness.Surroundings {
		return readiness.Surroundings{Unexplained: map[offrampv1.ListName][]string{servers: items, addresses: items}}
	}
	blind := node(ipvsMode)
	blind.unreadable[kinds.ipvs] = true
	cases := []struct {
		name, rule string
		node       *testNode
		around     readiness.Surroundings
		want       answer
	}{
		{"stale on ipvs", "unexplained-virtual-servers", node(ipvsMode), compared(stale...), says(warning)},
		{"stale after the move", "unexplained-virtual-servers", node(nftablesMode), compared(stale...), says(info)},
		{"foreign", "unexplained-virtual-servers", foreign, compared(stale...), silent},
		{"explained", "unexplained-virtual-servers", node(ipvsMode), compared(), silent},
		{"not compared", "unexplained-virtual-servers", node(ipvsMode), readiness.Surroundings{}, silent},
		{"unreadable", "unexplained-virtual-servers", blind, compared(stale...), notRead},
		{"address on ipvs", "unexplained-addresses", node(ipvsMode), compared("10.96.0.77"), says(warning)},
		{"address explained", "unexplained-addresses", node(ipvsMode), compared(), silent},
	}
	for _, c := range cases {
		got := readiness.AssessIn(c.node.facts(), toNFTables, c.around)
		t.Run(c.name, func(t *testing.T) { checkAnswer(t, got, c.rule, c.want) })
	}
}
