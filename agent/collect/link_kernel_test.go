package collect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// readTheLink reads the section of kube-ipvs0 as a scan does.
func readTheLink(t *testing.T) *offrampv1.IpvsLinkFacts {
	t.Helper()
	return readTheLinkSection(t).GetStable().GetIpvsLink()
}

func readTheLinkSection(t *testing.T) *offrampv1.Section {
	t.Helper()
	scan := &scan{scanner: New(Config{Host: DefaultHost()})}
	section := scan.readIPVSLink(t.Context())
	wantState(t, section, sectionPresent)
	content := section.GetStable().GetIpvsLink()
	if content.GetSurroundingsError() != "" {
		t.Errorf("surroundings: %s", content.GetSurroundingsError())
	}
	if err := errors.Join(facts.Check(kindIPVSLink, section.GetStable()), facts.CheckVolatile(kindIPVSLink, section.GetVolatile())); err != nil {
		t.Error(err)
	}
	return section
}

// enterWithAnyLink lets a bridge play kube-ipvs0, whose addresses have local routes alike.
func enterWithAnyLink(t *testing.T) bool {
	t.Helper()
	nstest.NeedTool(t, "ip")
	nstest.NeedKernel(t, "bridge")
	if !nstest.Enter(t) {
		return false
	}
	// Without link-local addresses, which the kernel gives and confirms some seconds after a link came up.
	run(t, `link add kube-ipvs0 type bridge
link add eth0 type bridge
link set kube-ipvs0 addrgenmode none
link set eth0 addrgenmode none
link set eth0 up
`, "ip", "-batch", "-")
	return true
}

// listedRoutes counts what ip says of the local table: all, and those whose source is the destination.
func listedRoutes(t *testing.T) (all, self uint64) {
	t.Helper()
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(run(t, "", "ip", family, "route", "show", "table", "local", "dev", "kube-ipvs0")) {
			words := strings.Fields(line)
			if words[0] != "local" {
				continue
			}
			all++
			source := slices.Index(words, "src")
			if source < 0 && family == "-6" || source > 0 && words[source+1] == words[1] {
				self++
			}
		}
	}
	return all, self
}

// enterWithServices has addresses of Services on a link that is down, and one of the node.
func enterWithServices(t *testing.T) bool {
	t.Helper()
	if !enterWithAnyLink(t) {
		return false
	}
	run(t, `addr add 10.96.0.10/32 dev kube-ipvs0
addr add 10.96.0.77/32 dev kube-ipvs0
addr add fd00:10:96::a/128 dev kube-ipvs0 nodad
addr add 192.0.2.7/24 dev eth0
`, "ip", "-batch", "-")
	return true
}

// listenOn listens on a port of an address until the test ends.
func listenOn(t *testing.T, network, address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
}

// sourceOf connects to an address and tells where the connection comes from. It stays open until the test ends.
func sourceOf(t *testing.T, address string) string {
	t.Helper()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("the address of a link that is down answers nobody: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	host, _, _ := net.SplitHostPort(client.LocalAddr().String())
	return host
}

// STATE-11: addresses on a link that is down are the node's own, and a listener on the wildcard answers there.
func TestState11AListenerOfTheHostIsExposed(t *testing.T) {
	if !enterWithServices(t) {
		return
	}
	listenOn(t, "tcp4", "0.0.0.0:2222")
	listenOn(t, "tcp4", "127.0.0.1:3333")
	listenOn(t, "tcp6", "[::]:4444")
	sourceOf(t, "10.96.0.77:2222")
	link := readTheLink(t)
	all, self := listedRoutes(t)
	if link.GetLocalRoutes() != all || link.GetSelfSourceRoutes() != self || self < 2 {
		t.Errorf("%d local routes, %d of them with themselves as source; ip says %d, %d", link.GetLocalRoutes(), link.GetSelfSourceRoutes(), all, self)
	}
	if diff := cmp.Diff([]string{"tcp 0.0.0.0:2222", "tcp [::]:4444"}, socketWords(link.GetWildcardListeners())); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
}

// STATE-12: a connection of the host to such an address carries it as its source, until the route prefers another.
func TestState12TheSourceOfAConnection(t *testing.T) {
	if !enterWithServices(t) {
		return
	}
	listenOn(t, "tcp", ":2222")
	link := readTheLink(t)
	if source := sourceOf(t, "10.96.0.10:2222"); source != "10.96.0.10" {
		t.Errorf("the connection comes from %s, want the address itself", source)
	}
	// Both ends of the connection are on this host, with that address. They come and go, and alone change nothing.
	section := readTheLinkSection(t)
	if with := section.GetVolatile().GetIpvsLink(); with.GetSockets() != 2 || len(with.GetSocketSamples()) != 2 {
		t.Errorf("%d sockets, %v", with.GetSockets(), with.GetSocketSamples())
	}
	if diff := cmp.Diff(link, section.GetStable().GetIpvsLink(), protocmp.Transform()); diff != "" {
		t.Errorf("a connection changed the stable part (-without +with):\n%s", diff)
	}
	// What a clean-up does first: the node's own address becomes the source.
	run(t, "", "ip", "route", "replace", "local", "10.96.0.77", "dev", "kube-ipvs0", "table", "local", "src", "192.0.2.7")
	again := readTheLink(t)
	all, self := listedRoutes(t)
	if again.GetLocalRoutes() != all || again.GetSelfSourceRoutes() != self || self != link.GetSelfSourceRoutes()-1 {
		t.Errorf("%d local routes, %d with themselves as source; ip says %d, %d", again.GetLocalRoutes(), again.GetSelfSourceRoutes(), all, self)
	}
	if source := sourceOf(t, "10.96.0.77:2222"); source != "192.0.2.7" {
		t.Errorf("the connection comes from %s, want the node's address", source)
	}
}

func socketWords(sockets []*offrampv1.HostSocket) []string {
	var lines []string
	for _, one := range sockets {
		lines = append(lines, strings.TrimSpace(one.GetProtocol()+" "+one.GetLocal()+" "+one.GetRemote()))
	}
	return lines
}

// An address that a neighbour answers for is another machine's.
func TestAddressesClaimedByNeighbours(t *testing.T) {
	if !enterWithAnyLink(t) {
		return
	}
	run(t, `addr add 10.96.0.10/32 dev kube-ipvs0
addr add 10.96.0.11/32 dev kube-ipvs0
addr add 10.96.0.12/32 dev kube-ipvs0
addr add fd00:10:96::a/128 dev kube-ipvs0 nodad
neigh add 10.96.0.10 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
neigh add 10.96.0.11 lladdr 02:00:00:00:00:01 dev eth0 nud stale
neigh add 10.96.0.12 dev eth0 nud failed
neigh add 10.96.0.99 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
neigh add 10.96.0.12 lladdr 02:00:00:00:00:01 dev kube-ipvs0 nud permanent
neigh add fd00:10:96::a lladdr 02:00:00:00:00:01 dev eth0 nud permanent
`, "ip", "-batch", "-")
	want := []string{"10.96.0.10", "10.96.0.11", "fd00:10:96::a"}
	if diff := cmp.Diff(want, readTheLink(t).GetClaimedByNeighbours()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// STATE-28: so many addresses that plain tools fail with too small a buffer.
func TestState28VeryManyAddresses(t *testing.T) {
	if !enterWithAnyLink(t) {
		return
	}
	run(t, manyAddresses("kube-ipvs0", 10_000), "ip", "-batch", "-")
	link := readTheLink(t)
	if link.GetIpv4Addresses() != 10_000 || link.GetLocalRoutes() != 10_000 || link.GetSelfSourceRoutes() != 10_000 || len(link.GetSamples()) != 20 {
		t.Errorf("%d addresses, %d routes, %d with themselves as source", link.GetIpv4Addresses(), link.GetLocalRoutes(), link.GetSelfSourceRoutes())
	}
}

// Which of the node's addresses is the primary one: as ip says that the kernel chooses.
func TestPrimaryAddress(t *testing.T) {
	if !enterWithAnyLink(t) {
		return
	}
	run(t, `link add eth1 type bridge
link set eth1 up
link set kube-ipvs0 up
addr add 203.0.113.1/24 dev kube-ipvs0
addr add 169.254.1.1/16 dev eth0 scope link
addr add 192.0.2.7/24 dev eth0
addr add 192.0.2.8/24 dev eth0
addr add 198.51.100.7/24 dev eth1
addr add 198.51.100.99/32 dev eth1
addr add 2001:db8::7/64 dev eth0 nodad
addr add 2001:db8:1::7/64 dev eth1 nodad
`, "ip", "-batch", "-")
	wantPrimary(t, "no default route", "192.0.2.7", "2001:db8::7")
	run(t, "", "ip", "route", "add", "default", "via", "198.51.100.1", "metric", "100")
	run(t, "", "ip", "-6", "route", "add", "default", "via", "2001:db8:1::1", "metric", "100")
	wantPrimary(t, "a default route", "198.51.100.7", "2001:db8:1::7")
	chosen := run(t, "", "ip", "route", "get", "8.8.8.8")
	if !strings.Contains(chosen, "src 198.51.100.7 ") {
		t.Errorf("the kernel chooses otherwise: %s", chosen)
	}
	run(t, "", "ip", "route", "add", "default", "via", "192.0.2.1", "metric", "50", "src", "192.0.2.8")
	wantPrimary(t, "a better one with a preferred source", "192.0.2.8", "2001:db8:1::7")
	wantLookUp(t, true)
	for _, astray := range [][]string{
		{"route", "add", "192.0.0.0/24", "via", "198.51.100.1"},
		{"route", "add", "default", "via", "198.51.100.1", "table", "100"},
		{"rule", "add", "to", "192.0.0.8", "table", "100", "priority", "20"},
		{"rule", "add", "to", "192.0.0.8", "unreachable", "priority", "10"},
	} {
		run(t, "", "ip", astray...)
		wantPrimary(t, strings.Join(astray, " "), "192.0.2.8", "2001:db8:1::7")
		wantLookUp(t, false)
	}
}

// wantLookUp checks whether the default route is found without a dump.
func wantLookUp(t *testing.T, want bool) {
	t.Helper()
	s, err := openSocket(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.askStrictly(); err != nil {
		t.Fatal(err)
	}
	if best, found, err := lookUpDefaultRoute(t.Context(), s); err != nil || found != want {
		t.Errorf("the default route is %+v, found %v, error %v; want %v", best, found, err, want)
	}
}

func wantPrimary(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for _, address := range addressesSection(readTheNetwork(t)).GetStable().GetAddresses().GetSamples() {
		if address.GetPrimary() {
			got = append(got, address.GetAddress())
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// STATE-10: the link alone is left.
func TestState10TheLinkAlone(t *testing.T) {
	nstest.NeedKernel(t, "dummy")
	if !enterWithLink(t, "dummy") {
		return
	}
	run(t, manyAddresses("kube-ipvs0", 30), "ip", "-batch", "-")
	link := readTheLink(t)
	if link.GetOwner() != string(kubeproxy.OwnerIPVS) || link.GetIpv4Addresses() != 30 || link.GetLocalRoutes() != 30 {
		t.Errorf("%v", link)
	}
	node := New(Config{Host: DefaultHost()}).Scan(context.Background())
	for _, kind := range []offrampv1.SectionKind{kindIPVS, kindIPSets} {
		if got := facts.Find(node, kind).GetStable().GetState(); got != sectionAbsent && got != sectionEmpty {
			t.Errorf("%v is %v", kind, got)
		}
	}
}

// Local routes of a capture, as they were in the node that it is of.
func TestLocalRoutesOfTheCapture(t *testing.T) {
	if !enterWithLink(t, "dummy") {
		return
	}
	var batch strings.Builder
	count := uint64(0)
	for line := range strings.Lines(readCapture(t, "ipvs", "ip-route-local.txt")) {
		if words := strings.Fields(line); words[0] == "local" && strings.Contains(line, " dev kube-ipvs0 ") {
			fmt.Fprintf(&batch, "addr add %s dev kube-ipvs0\n", netip.PrefixFrom(netip.MustParseAddr(words[1]), 32))
			count++
		}
	}
	run(t, batch.String(), "ip", "-batch", "-")
	if link := readTheLink(t); link.GetLocalRoutes() != count || link.GetSelfSourceRoutes() != count {
		t.Errorf("%d routes, %d with themselves as source; want %d", link.GetLocalRoutes(), link.GetSelfSourceRoutes(), count)
	}
}
