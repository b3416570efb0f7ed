package collect

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJoinNetworkSeesALinkThatWentAway(t *testing.T) {
	links := map[int]linkHeader{2: {name: "eth0"}}
	on := func(link int) []linkAddress {
		return []linkAddress{{link: link, prefix: netip.MustParsePrefix("10.0.0.1/24")}}
	}
	if network, err := joinNetwork(links, on(2)); err != nil || len(network.addresses) != 1 {
		t.Errorf("%v, %v", network, err)
	}
	if _, err := joinNetwork(links, on(3)); !errors.Is(err, errTorn) {
		t.Errorf("error %v, want %v", err, errTorn)
	}
}

// One address may be bound twice, with two prefix lengths: counted as the two that ip lists, and listed as one address.
func TestAnAddressBoundTwice(t *testing.T) {
	network, err := joinNetwork(map[int]linkHeader{2: {name: "kube-ipvs0", kind: "dummy"}}, []linkAddress{
		{link: 2, prefix: netip.MustParsePrefix("10.96.0.9/32")}, {link: 2, prefix: netip.MustParsePrefix("10.96.0.1/32")},
		{link: 2, prefix: netip.MustParsePrefix("10.96.0.1/24")},
	})
	if err != nil {
		t.Fatal(err)
	}
	content := ipvsLinkSection(network).GetStable().GetIpvsLink()
	if diff := cmp.Diff([]string{"10.96.0.1", "10.96.0.9"}, content.GetSamples()); diff != "" {
		t.Error(diff)
	}
	if content.GetIpv4Addresses() != 3 || content.GetList().GetCount() != 2 || content.GetOwner() != "kube-proxy/ipvs" {
		t.Errorf("%v", content)
	}
}
