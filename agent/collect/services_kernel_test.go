package collect

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/nstest"
)

// expectedServices are three Services of the captures, counted by hand from their save files.
func expectedServices() []string {
	return []string{
		"TCP 10.96.0.1:443 default/kubernetes:https 192.0.2.2:16443",
		"TCP 10.96.114.126:53 default/dns:dnst 10.244.1.16:5353 10.244.2.17:5353",
		"UDP 10.96.114.126:53 default/dns:dns 10.244.1.16:5353 10.244.2.17:5353",
	}
}

func pickExpected(all []inventory.Service) []inventory.Service {
	return slices.DeleteFunc(slices.Clone(all), func(service inventory.Service) bool {
		return service.Address != netip.MustParseAddrPort("10.96.0.1:443") && service.Address != netip.MustParseAddrPort("10.96.114.126:53")
	})
}

func serviceWords(services []inventory.Service) []string {
	var words []string
	for _, service := range services {
		line := service.Protocol + " " + service.Address.String() + " " + service.Name
		for _, endpoint := range service.Endpoints {
			line += " " + endpoint.String()
		}
		words = append(words, line)
	}
	return words
}

func checkServices(t *testing.T) {
	t.Helper()
	got, err := New(Config{Host: DefaultHost()}).Services(t.Context(), pickExpected)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(expectedServices(), serviceWords(got)); diff != "" {
		t.Error(diff)
	}
}

// What the real kube-proxy wrote in each mode and backend leads to the same endpoints.
func TestServicesOfIPTablesMode(t *testing.T) {
	for _, tool := range []string{"iptables-nft-restore", "iptables-legacy-restore"} {
		t.Run(tool, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			nstest.NeedTool(t, tool)
			run(t, withoutMissing(t, readCapture(t, "iptables", "iptables-nft-save.txt")), tool)
			checkServices(t)
		})
	}
}

func TestServicesOfNFTablesMode(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	text := readCapture(t, "nftables", "nft-ruleset.txt")
	at := strings.Index(text, "table ip kube-proxy {")
	run(t, text[at:], "nft", "-f", "-")
	checkServices(t)
}

// In an empty namespace there are none, and looking for them leaves it empty.
func TestServicesOfNothing(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	got, err := New(Config{Host: DefaultHost()}).Services(t.Context(), pickExpected)
	if len(got) > 0 || err != nil {
		t.Errorf("%v (%v)", got, err)
	}
	if rules := run(t, "", "nft", "list", "ruleset"); rules != "" {
		t.Errorf("looking left %s", rules)
	}
}

func TestServiceOfChain(t *testing.T) {
	for chain, want := range map[string]string{
		"service-2QRHZV4L-default/kubernetes/tcp/https": "default/kubernetes:https",
		"external-D2RGPZ6L-a/b/udp/":                    "a/b",
		"service-2QRHZV4L-a/b/tcp":                      "a/b",
		"services":                                      "",
		"x-y-z":                                         "",
		"":                                              "",
	} {
		if got := serviceOfChain(chain); got != want {
			t.Errorf("%q: %q, want %q", chain, got, want)
		}
	}
}

func TestMergeServices(t *testing.T) {
	at, one, two := netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("192.0.2.2:6443"), netip.MustParseAddrPort("192.0.2.1:6443")
	got := mergeServices([]inventory.Service{
		{Protocol: "TCP", Address: at, Endpoints: []netip.AddrPort{one}},
		{Protocol: "UDP", Address: at},
		{Name: "default/kubernetes:https", Protocol: "TCP", Address: at, Endpoints: []netip.AddrPort{one, two}},
	})
	want := []string{"TCP 10.96.0.1:443 default/kubernetes:https 192.0.2.1:6443 192.0.2.2:6443", "UDP 10.96.0.1:443 "}
	if diff := cmp.Diff(want, serviceWords(got)); diff != "" {
		t.Error(diff)
	}
}
