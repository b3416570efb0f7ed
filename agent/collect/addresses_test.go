package collect

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func bound(t *testing.T, link int, prefix string) linkAddress {
	t.Helper()
	parsed := netip.MustParsePrefix(prefix)
	address, ok := on(link, parsed.Addr().AsSlice(), uint8(parsed.Bits())) //nolint:gosec // 0 to 128
	if !ok || address.prefix() != parsed {
		t.Fatalf("%s became %s", prefix, address.prefix())
	}
	return address
}

func TestJoinNetworkSeesALinkThatWentAway(t *testing.T) {
	links := map[int]linkHeader{2: {name: "eth0"}}
	onLink := func(link int) []linkAddress { return []linkAddress{bound(t, link, "10.0.0.1/24")} }
	if network, err := joinNetwork(links, onLink(2)); err != nil || len(network.addresses) != 1 {
		t.Errorf("%v, %v", network, err)
	}
	if _, err := joinNetwork(links, onLink(3)); !errors.Is(err, errTorn) {
		t.Errorf("error %v, want %v", err, errTorn)
	}
}

// One address may be bound twice, with two prefix lengths: counted as the two that ip lists, and listed as one address.
func TestAnAddressBoundTwice(t *testing.T) {
	network, err := joinNetwork(map[int]linkHeader{2: {name: "kube-ipvs0", kind: "dummy"}}, []linkAddress{
		bound(t, 2, "10.96.0.9/32"), bound(t, 2, "10.96.0.1/32"), bound(t, 2, "10.96.0.1/24"),
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
