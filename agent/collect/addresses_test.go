package collect

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func bound(t *testing.T, link int, prefix string) linkAddress {
	t.Helper()
	parsed := netip.MustParsePrefix(prefix)
	address, ok := on(link, parsed.Addr().AsSlice(), uint8(parsed.Bits()))
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

// The list is in the order of texts, whatever it is sorted by.
func TestAddressesAreSortedAsTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []linkAddress
	var want []string
	for range 5000 {
		ip := netip.AddrFrom4([4]byte{10, byte(random.Uint32N(256)), byte(random.Uint32N(256)), byte(random.Uint32N(3))})
		all = append(all, bound(t, 2, ip.String()+"/32"))
		want = append(want, ip.String())
	}
	for _, ip := range []string{"fd00::a", "::ffff:10.0.0.1", "2001:db8::1", "1::"} {
		all = append(all, bound(t, 2, ip+"/128"))
		want = append(want, ip)
	}
	slices.Sort(want)
	network := &network{links: map[int]linkHeader{2: {name: "kube-ipvs0", kind: "dummy"}}, addresses: all}
	if diff := cmp.Diff(slices.Compact(want), network.ipvsLinkAddresses()); diff != "" {
		t.Error(diff)
	}
}
