package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// enterWithLink goes into a namespace with a link kube-ipvs0 of the kind and a link eth0 for the node's own addresses.
func enterWithLink(t *testing.T, kind string) bool {
	t.Helper()
	nstest.NeedTool(t, "ip")
	nstest.NeedKernel(t, kind, "bridge")
	if !nstest.Enter(t) {
		return false
	}
	run(t, "link add kube-ipvs0 type "+kind+"\nlink add eth0 type bridge\n", "ip", "-batch", "-")
	return true
}

func readTheNetwork(t *testing.T) *network {
	t.Helper()
	network, _, err := readNetwork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// listedAddresses reads `ip -o addr`: "2: eth0    inet 10.0.2.15/24 scope ...", with "peer ADDRESS/LENGTH" where there is one.
func listedAddresses(t *testing.T, link string) []string {
	t.Helper()
	var list []string
	for line := range strings.Lines(run(t, "", "ip", "-o", "addr", "show", "dev", link)) {
		list = append(list, strings.Split(strings.Fields(line)[3], "/")[0])
	}
	slices.Sort(list)
	return list
}

func TestIPVSLinkPlayedByABridge(t *testing.T) {
	if !enterWithLink(t, "bridge") {
		return
	}
	run(t, `addr add 10.96.0.1/32 dev kube-ipvs0
addr add 10.96.0.10/32 dev kube-ipvs0
addr add fd00:10:96::a/128 dev kube-ipvs0 nodad
addr add 192.0.2.7/24 dev eth0
addr add 192.0.2.8 peer 198.51.100.1/32 dev eth0
addr add 2001:db8::7/64 dev eth0 nodad
`, "ip", "-batch", "-")
	network := readTheNetwork(t)
	section := ipvsLinkSection(network)
	wantState(t, section, sectionPresent)
	items := listedAddresses(t, "kube-ipvs0")
	want := &offrampv1.IpvsLinkFacts{
		// A bridge of that name is nobody's that is known: it is not deleted and not counted as kube-proxy's.
		LinkType: "bridge", Owner: "foreign:unidentified", Ipv4Addresses: 2, Ipv6Addresses: 1, Samples: items,
		List: facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, items),
	}
	if diff := cmp.Diff(want, section.GetStable().GetIpvsLink(), protocmp.Transform()); diff != "" {
		t.Errorf("(-ip +ours):\n%s", diff)
	}
	own := addressesSection(network).GetStable().GetAddresses()
	wantOwn := &offrampv1.AddressesFacts{Count: 3, Samples: []*offrampv1.NodeAddress{
		{Interface: "eth0", Address: "192.0.2.7", PrefixLength: 24, Primary: true},
		{Interface: "eth0", Address: "192.0.2.8", PrefixLength: 32},
		{Interface: "eth0", Address: "2001:db8::7", PrefixLength: 64, Primary: true},
	}}
	if diff := cmp.Diff(wantOwn, own, protocmp.Transform()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	local := network.local()
	for address, want := range map[string][2]bool{
		"10.96.0.1": {true, false}, "fd00:10:96::a": {true, false}, "192.0.2.7": {false, true},
		"127.0.0.1": {false, true}, "198.51.100.1": {false, false},
	} {
		ip := netip.MustParseAddr(address)
		if got := [2]bool{local.OnIPVSLink(ip), local.OnNode(ip)}; got != want {
			t.Errorf("%s on kube-ipvs0, on the node: %v, want %v", address, got, want)
		}
	}
}

func TestIPVSLinkOfKubeProxy(t *testing.T) {
	if !enterWithLink(t, "dummy") {
		return
	}
	section := ipvsLinkSection(readTheNetwork(t))
	wantState(t, section, sectionPresent)
	want := &offrampv1.IpvsLinkFacts{
		LinkType: "dummy", Owner: "kube-proxy/ipvs", List: facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, nil),
	}
	if diff := cmp.Diff(want, section.GetStable().GetIpvsLink(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	run(t, "", "ip", "link", "set", "kube-ipvs0", "up")
	if !ipvsLinkSection(readTheNetwork(t)).GetStable().GetIpvsLink().GetUp() {
		t.Error("the link is up and not said to be")
	}
}

func TestIPVSLinkAbsent(t *testing.T) {
	if !enterWithLink(t, "bridge") {
		return
	}
	// A name that only begins so is another link.
	run(t, "link set kube-ipvs0 name kube-ipvs00\naddr add 10.96.0.1/32 dev kube-ipvs00\n", "ip", "-batch", "-")
	network := readTheNetwork(t)
	wantState(t, ipvsLinkSection(network), sectionAbsent)
	wantState(t, addressesSection(network), sectionPresent)
	run(t, "", "ip", "link", "del", "kube-ipvs00")
	wantState(t, addressesSection(readTheNetwork(t)), sectionEmpty)
}

func TestAddressSamplesAreBounded(t *testing.T) {
	if !enterWithLink(t, "bridge") {
		return
	}
	run(t, manyAddresses("eth0", 100)+manyAddresses("kube-ipvs0", 300), "ip", "-batch", "-")
	network := readTheNetwork(t)
	own := addressesSection(network).GetStable().GetAddresses()
	if own.GetCount() != 100 || len(own.GetSamples()) != 64 {
		t.Errorf("%d addresses, %d samples; want 100, 64", own.GetCount(), len(own.GetSamples()))
	}
	link := ipvsLinkSection(network).GetStable().GetIpvsLink()
	if link.GetIpv4Addresses() != 300 || len(link.GetSamples()) != 20 || link.GetList().GetCount() != 300 {
		t.Errorf("%d addresses, %d samples, %d in the list", link.GetIpv4Addresses(), len(link.GetSamples()), link.GetList().GetCount())
	}
	items, err := New(Config{Host: DefaultHost()}).List(t.Context(), link.GetList())
	if diff := cmp.Diff(listedAddresses(t, "kube-ipvs0"), items); err != nil || diff != "" {
		t.Errorf("list: %v\n%s", err, diff)
	}
	run(t, "", "ip", "addr", "del", items[0], "dev", "kube-ipvs0")
	if _, err := New(Config{Host: DefaultHost()}).List(t.Context(), link.GetList()); !errors.Is(err, ErrListChanged) {
		t.Errorf("a list that changed: %v", err)
	}
}

func manyAddresses(link string, count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "addr add 10.%d.%d.%d/32 dev %s\n", 100+i>>16, i>>8&255, i&255, link)
	}
	return text.String()
}

// Another process adds and removes addresses and a link without pause: a reading that is reported is whole.
func TestNetworkUnderChurn(t *testing.T) {
	if !enterWithLink(t, "bridge") {
		return
	}
	const permanent = 2000
	run(t, manyAddresses("kube-ipvs0", permanent), "ip", "-batch", "-")
	stop := churn(t, `addr add 203.0.113.1/32 dev kube-ipvs0
link add moving type bridge
addr add 203.0.113.2/32 dev moving
addr del 203.0.113.1/32 dev kube-ipvs0
link del moving
`, "ip", "-batch", "-")
	defer stop()
	whole, moving := 0, 0
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		network, _, err := readNetwork(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, errInconsistent) && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			moving++
			continue
		}
		whole++
		if got := ipvsLinkSection(network).GetStable().GetIpvsLink().GetIpv4Addresses(); got < permanent || got > permanent+1 {
			t.Fatalf("%d addresses on kube-ipvs0, want %d or one more", got, permanent)
		}
	}
	t.Logf("%d readings whole, %d given up", whole, moving)
	if whole+moving == 0 {
		t.Error("nothing was read")
	}
}

func BenchmarkAddresses(b *testing.B) {
	enterWithAddresses(b)
	b.ReportAllocs()
	for b.Loop() {
		network, _, err := readNetwork(b.Context())
		if err != nil || ipvsLinkSection(network).GetStable().GetIpvsLink().GetIpv4Addresses() != 10_000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkIPAddr is the native tool on the same state, for comparison.
func BenchmarkIPAddr(b *testing.B) {
	enterWithAddresses(b)
	for b.Loop() {
		if err := exec.CommandContext(b.Context(), "ip", "addr").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func enterWithAddresses(b *testing.B) {
	b.Helper()
	enterNamespace(b)
	command := exec.CommandContext(b.Context(), "ip", "-batch", "-")
	command.Stdin = strings.NewReader("link add kube-ipvs0 type bridge\n" + manyAddresses("kube-ipvs0", 10_000) + `link add eth0 type bridge
link set eth0 up
addr add 198.51.100.7/24 dev eth0
route add default via 198.51.100.1
`)
	if out, err := command.CombinedOutput(); err != nil {
		b.Skipf("%v: %s", err, out)
	}
}
