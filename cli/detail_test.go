package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func items(items ...string) *offrampv1.GetDetailResponse {
	return &offrampv1.GetDetailResponse{Items: items}
}

// What is asked for goes out as it was written: a name is bytes, and no shell's.
func TestDetailQuestions(t *testing.T) {
	chain := func(section offrampv1.SectionKind, family, table, chain string) *offrampv1.GetDetailRequest {
		return &offrampv1.GetDetailRequest{Node: "n", Detail: &offrampv1.GetDetailRequest_Chain{
			Chain: &offrampv1.ChainQuery{Section: section, Family: family, Table: table, Chain: chain},
		}}
	}
	service := func(query *offrampv1.ServiceQuery) *offrampv1.GetDetailRequest {
		return &offrampv1.GetDetailRequest{Node: "n", Detail: &offrampv1.GetDetailRequest_Service{Service: query}}
	}
	for _, tt := range []struct {
		args []string
		want *offrampv1.GetDetailRequest
	}{
		{[]string{"ipset", "n", "$(reboot)"}, &offrampv1.GetDetailRequest{Node: "n", Detail: &offrampv1.GetDetailRequest_Ipset{Ipset: "$(reboot)"}}},
		{[]string{"ipset", "--", "n", "--force"}, &offrampv1.GetDetailRequest{Node: "n", Detail: &offrampv1.GetDetailRequest_Ipset{Ipset: "--force"}}},
		{[]string{"ipset", "n", "a\nb\x1b[2J"}, &offrampv1.GetDetailRequest{Node: "n", Detail: &offrampv1.GetDetailRequest_Ipset{Ipset: "a\nb\x1b[2J"}}},
		{
			[]string{"chain", "n", "iptables-legacy-ipv6", "nat", "`x`"},
			chain(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, "", "nat", "`x`"),
		},
		{
			[]string{"chain", "n", "iptables-nft-ipv4", "nat", "KUBE-SERVICES"},
			chain(offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, "", "nat", "KUBE-SERVICES"),
		},
		{
			[]string{"chain", "n", "nft-inet", "my table", "services"},
			chain(offrampv1.SectionKind_SECTION_KIND_NFTABLES, "inet", "my table", "services"),
		},
		{
			[]string{"service", "n", "tcp", "10.96.0.1:443", "[fd00::1]:443", "--node-port", "30443"},
			service(&offrampv1.ServiceQuery{Protocol: "TCP", Addresses: []string{"10.96.0.1", "fd00::1"}, Port: 443, NodePort: 30443}),
		},
		{[]string{"service", "n", "udp", "--node-port", "30053"}, service(&offrampv1.ServiceQuery{Protocol: "UDP", NodePort: 30053})},
	} {
		fleet := &fakeFleet{details: []*offrampv1.GetDetailResponse{items("x")}}
		got := ask(t, fleet, append([]string{"detail"}, tt.args...)...)
		got.want(t, 0, "x\n", "")
		if diff := cmp.Diff(tt.want, fleet.asked, protocmp.Transform()); diff != "" {
			t.Errorf("%q, by hand (-) and as asked (+):\n%s", tt.args, diff)
		}
	}
}

func TestDetailMistakes(t *testing.T) {
	fleet := &fakeFleet{}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"ipset", "n"}, "wants a node and the name of a set"},
		{[]string{"ipset", "n", ""}, "one is empty"},
		{[]string{"chain", "n", "nat", "KUBE-SERVICES"}, "wants a node, a backend, a table and a chain"},
		{[]string{"chain", "n", "iptables", "nat", "X"}, `"iptables" is none of iptables-nft-ipv4`},
		{[]string{"service", "n"}, "wants a node, a protocol"},
		{[]string{"service", "n", "icmp", "10.0.0.1:1"}, "none of tcp, udp, sctp"},
		{[]string{"service", "n", "tcp"}, "which Service"},
		{[]string{"service", "n", "tcp", "10.0.0.1"}, "no address with a port"},
		{[]string{"service", "n", "tcp", "10.0.0.1:0"}, "no address with a port"},
		{[]string{"service", "n", "tcp", "10.0.0.1:1", "10.0.0.2:2"}, "not both 1 and 2"},
		{[]string{"service", "n", "tcp", "--node-port", "65536"}, "65536"},
	} {
		ask(t, fleet, append([]string{"detail"}, tt.args...)...).want(t, 1, "", tt.want)
	}
	if fleet.asked != nil {
		t.Errorf("the aggregator was asked %v", fleet.asked)
	}
}

// What a node says cannot speak to the terminal; JSON keeps every byte.
func TestDetailAnswers(t *testing.T) {
	fleet := &fakeFleet{details: []*offrampv1.GetDetailResponse{items("add $(reboot) 10.0.0.1", "a\nb"), items("\x1b[2J<&>")}}
	got := ask(t, fleet, "detail", "ipset", "n", "S")
	got.want(t, 0, "", "")
	if want := "add $(reboot) 10.0.0.1\na\\x0ab\n\\x1b[2J<&>\n"; got.stdout != want {
		t.Errorf("got %q, want %q", got.stdout, want)
	}
	got = ask(t, fleet, "detail", "ipset", "n", "S", "-o", "json")
	if want := "\"add $(reboot) 10.0.0.1\"\n\"a\\nb\"\n\"\\u001b[2J<&>\"\n"; got.stdout != want || got.code != 0 {
		t.Errorf("got %q, want %q", got.stdout, want)
	}
	fleet.details = append(fleet.details, &offrampv1.GetDetailResponse{Items: []string{"last"}, Error: "the node says: \x1bno"})
	ask(t, fleet, "detail", "ipset", "n", "S").want(t, 1, "last\n", `the answer of node "n" is not complete: the node says: \x1bno`)
	fleet.details, fleet.err = nil, status.Error(codes.NotFound, `node "n" never reported to this aggregator`)
	ask(t, fleet, "detail", "ipset", "n", "S").want(t, 1, "", "never reported")
}
