package collect

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The states of facts/field-reports.md that the IPVS table, its link and its sets are read in.

// enterNode goes into a namespace with a node's address on eth0, addresses of Services on kube-ipvs0, and kube-proxy's sets.
func enterNode(t *testing.T) bool {
	t.Helper()
	if !enterForIPVS(t) {
		return false
	}
	run(t, `link add eth0 type dummy
link set eth0 up
addr add 192.0.2.7/24 dev eth0
addr add 192.0.2.8/24 dev eth0
addr add 192.0.2.9/24 dev eth0
link add kube-ipvs0 type dummy
addr add 10.96.0.10/32 dev kube-ipvs0
`, "ip", "-batch", "-")
	run(t, `create KUBE-CLUSTER-IP hash:ip,port
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
add KUBE-NODE-PORT-TCP 30080
`, "ipset", "restore")
	return true
}

// readNode scans and returns the IPVS section.
func readNode(t *testing.T, scanner *Scanner) (*offrampv1.IpvsFacts, *offrampv1.IpvsVolatile) {
	t.Helper()
	section := facts.Find(scanner.Scan(t.Context()), kindIPVS)
	wantState(t, section, sectionPresent)
	volatile := section.GetVolatile().GetIpvs()
	if volatile.GetTrafficError() != "" || section.GetStable().GetIpvs().GetAttributionError() != "" {
		t.Errorf("traffic: %q, attribution: %q", volatile.GetTrafficError(), section.GetStable().GetIpvs().GetAttributionError())
	}
	return section.GetStable().GetIpvs(), volatile
}

func newScanner(t *testing.T) *Scanner {
	t.Helper()
	return New(Config{Host: DefaultHost(), KubeProxy: nowhere(t)})
}

func serverOwners(content *offrampv1.IpvsFacts) map[string]string {
	owners := map[string]string{}
	for _, server := range content.GetSamples() {
		owners[fmt.Sprintf("%s %s:%d", server.GetProtocol(), server.GetAddress(), server.GetPort())] = server.GetOwner()
	}
	return owners
}

// serveTCP answers on an address until the test ends, and keeps connections open.
func serveTCP(t *testing.T, address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		// A connection that nobody holds is closed by the garbage collector.
		var held []net.Conn
		for {
			client, err := listener.Accept()
			if err != nil {
				break
			}
			held = append(held, client)
			_, _ = client.Write([]byte("hello\n"))
		}
		for _, client := range held {
			_ = client.Close()
		}
	}()
}

// connect opens a connection from an address of the node and waits for the greeting.
func connect(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := io.ReadFull(client, make([]byte, len("hello\n"))); err != nil {
		t.Fatal(err)
	}
	return client
}

// STATE-33: an established connection counts; one that is over, and the memory of session affinity, do not.
func TestState33AnEstablishedConnectionCounts(t *testing.T) {
	if !enterNode(t) {
		return
	}
	serveTCP(t, "192.0.2.7:8080")
	run(t, `-A -t 10.96.0.10:80 -s rr -p 10800
-a -t 10.96.0.10:80 -r 192.0.2.7:8080 -m -w 1
-A -t 10.6.110.166:80 -s rr
-a -t 10.6.110.166:80 -r 192.0.2.7:8080 -m -w 1
`, "ipvsadm", "-R")
	scanner := newScanner(t)
	content, volatile := readNode(t, scanner)
	if content.GetPersistent() != 1 || volatile.GetEstablishedConnections() != 0 {
		t.Errorf("%d persistent, %d connections", content.GetPersistent(), volatile.GetEstablishedConnections())
	}
	client := connect(t, "192.0.2.9", "10.96.0.10:80")
	if _, volatile = readNode(t, scanner); volatile.GetEstablishedConnections() != 1 {
		table, _ := os.ReadFile("/proc/net/ip_vs_conn")
		t.Errorf("%d connections of\n%s", volatile.GetEstablishedConnections(), table)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	_, volatile = readNode(t, scanner)
	table, err := os.ReadFile("/proc/net/ip_vs_conn")
	if err != nil || volatile.GetEstablishedConnections() != 0 || strings.Count(string(table), "\n") < 3 {
		t.Errorf("%d connections of\n%s(%v)", volatile.GetEstablishedConnections(), table, err)
	}
}

// STATE-34: of two node addresses the second one gets the traffic, which a move to nftables mode ends.
func TestState34NodePortTrafficByAddress(t *testing.T) {
	if !enterNode(t) {
		return
	}
	serveTCP(t, "192.0.2.9:8080")
	run(t, `-A -t 192.0.2.7:30080 -s rr
-a -t 192.0.2.7:30080 -r 192.0.2.9:8080 -m -w 1
-A -t 192.0.2.8:30080 -s rr
-a -t 192.0.2.8:30080 -r 192.0.2.9:8080 -m -w 1
-A -t 10.96.0.10:80 -s rr
-A -t 192.0.2.8:6443 -s rr
`, "ipvsadm", "-R")
	for range 3 {
		connect(t, "192.0.2.9", "192.0.2.8:30080")
	}
	scanner := newScanner(t)
	content, volatile := readNode(t, scanner)
	// The kernel sums its counters up every two seconds (estimation_timer in ip_vs_est.c).
	for deadline := time.Now().Add(20 * time.Second); counted(volatile) < 3 && time.Now().Before(deadline); {
		time.Sleep(500 * time.Millisecond)
		content, volatile = readNode(t, scanner)
	}
	ports := volatile.GetNodePorts()
	if len(ports) != 2 || volatile.GetEstablishedConnections() != 3 {
		t.Fatalf("%d connections, node ports %v; owners %v", volatile.GetEstablishedConnections(), ports, serverOwners(content))
	}
	if busy := ports[0]; busy.GetAddress() != "192.0.2.8" || busy.GetConnections() != 3 || busy.GetIncomingPackets() < 6 ||
		!slices.Equal(busy.GetClients(), []string{"192.0.2.9"}) {
		t.Errorf("%v", busy)
	}
	if idle := ports[1]; idle.GetAddress() != "192.0.2.7" || idle.GetConnections() != 0 || len(idle.GetClients()) != 0 {
		t.Errorf("%v", idle)
	}
	node := newScanner(t).Scan(t.Context())
	for _, address := range facts.Find(node, kindAddresses).GetStable().GetAddresses().GetSamples() {
		if address.GetPrimary() != (address.GetAddress() == "192.0.2.7") {
			t.Errorf("%s is primary: %v", address.GetAddress(), address.GetPrimary())
		}
	}
}

// counted is how many connections the statistics know of.
func counted(volatile *offrampv1.IpvsVolatile) (count uint64) {
	for _, port := range volatile.GetNodePorts() {
		count += port.GetConnections()
	}
	return count
}

// STATE-14: a Service that was deleted long ago is in the table and on the link, its real servers drained.
func TestState14AServiceLongGone(t *testing.T) {
	if !enterNode(t) {
		return
	}
	run(t, "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.9.9:8080 -m -w 0\n", "ipvsadm", "-R")
	scanner := newScanner(t)
	content, _ := readNode(t, scanner)
	if diff := cmp.Diff(map[string]string{"TCP 10.96.0.10:80": "kube-proxy/ipvs"}, serverOwners(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if content.GetRealServers() != 1 || content.GetRealServersWeightZero() != 1 {
		t.Errorf("%d real servers, %d of weight 0", content.GetRealServers(), content.GetRealServersWeightZero())
	}
	// The list by which the aggregator finds out that no Service has this address.
	items, err := scanner.List(t.Context(), content.GetList())
	if err != nil || !slices.Equal(items, []string{"TCP 10.96.0.10:80"}) {
		t.Errorf("list %v, %v", items, err)
	}
}

// STATE-49: keepalived's virtual server beside one of a Service.
func TestState49Keepalived(t *testing.T) {
	if !enterNode(t) {
		return
	}
	run(t, `-A -t 10.96.0.10:80 -s rr
-A -t 10.6.115.166:41808 -s wlc
-a -t 10.6.115.166:41808 -r 10.6.115.1:41808 -g -w 1
-A -t 192.0.2.8:30080 -s wlc
-a -t 192.0.2.8:30080 -r 10.6.115.1:41808 -g -w 1
`, "ipvsadm", "-R")
	content, _ := readNode(t, newScanner(t))
	if diff := cmp.Diff(map[string]string{
		"TCP 10.96.0.10:80":      "kube-proxy/ipvs",
		"TCP 10.6.115.166:41808": "foreign:unidentified",
		"TCP 192.0.2.8:30080":    "unknown", // a node port's address that does not masquerade
	}, serverOwners(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// STATE-50: the node's way to the API server, as lvscare and others make it: masquerading, also on an address of the node.
func TestState50TheWayToTheAPIServer(t *testing.T) {
	if !enterNode(t) {
		return
	}
	run(t, `-A -t 10.103.97.2:6443 -s rr
-a -t 10.103.97.2:6443 -r 192.0.2.101:6443 -m -w 1
-A -t 192.0.2.7:6443 -s rr
-a -t 192.0.2.7:6443 -r 192.0.2.101:6443 -m -w 1
`, "ipvsadm", "-R")
	scanner := newScanner(t)
	content, _ := readNode(t, scanner)
	want := map[string]string{"TCP 10.103.97.2:6443": "foreign:unidentified", "TCP 192.0.2.7:6443": "foreign:unidentified"}
	if diff := cmp.Diff(want, serverOwners(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// As it was configured once: remembered, and somebody else's by that alone.
	scanner.exclude.see([]string{"10.103.97.2/32"})
	content, _ = readNode(t, scanner)
	want["TCP 10.103.97.2:6443"] = "foreign:excluded"
	if diff := cmp.Diff(want, serverOwners(content)); diff != "" || !slices.Equal(content.GetExcludeCidrs(), []string{"10.103.97.2/32"}) {
		t.Errorf("excluded %v (-want +got):\n%s", content.GetExcludeCidrs(), diff)
	}
}

// STATE-29 in a kernel: the probe alone.
func TestState29TheProbeInAKernel(t *testing.T) {
	if !enterForIPVS(t) {
		return
	}
	run(t, "", "ipvsadm", "-A", "-t", "198.51.100.0:20000", "-s", "rr")
	content, _ := readNode(t, newScanner(t))
	if !content.GetProbeLeft() || content.GetSamples()[0].GetOwner() != string(kubeproxy.OwnerIPVS) {
		t.Errorf("%v", content)
	}
}

// STATE-25: where ip_vs is not loaded, reading does not load it.
func TestState25ReadingLoadsNothing(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	if os.Getenv(nstest.InGuest) == "1" {
		// Other tests of this run have loaded them.
		if out, err := exec.CommandContext(t.Context(), "modprobe", "-r", "ip_vs_rr", "ip_vs_lc", "ip_vs_wlc", "ip_vs").CombinedOutput(); err != nil {
			t.Logf("modprobe -r: %v: %s", err, out)
		}
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		t.Skip("ip_vs is there and does not go away")
	}
	before := modulesInSight(t)
	node := newScanner(t).Scan(t.Context())
	section := facts.Find(node, kindIPVS)
	wantState(t, section, sectionAbsent)
	if section.GetStable().GetError() != "" {
		t.Errorf("error %q", section.GetStable().GetError())
	}
	if diff := cmp.Diff(before, modulesInSight(t)); diff != "" {
		t.Errorf("modules (-before +after):\n%s", diff)
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		t.Error("ip_vs is there after it was looked for")
	}
}

// loadedModules names what is below /sys/module, loaded or built in.
func modulesInSight(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/sys/module/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d modules, %v", len(paths), err)
	}
	return paths
}

// STATE-51: what made other parsers fail. Duplicates are those of marks, which the kernel lists without their family.
func TestState51OddTables(t *testing.T) {
	const odd = ipvsHeader +
		"FWM  00000007 rr  \n" +
		"FWM  00000007 rr  \n" +
		"  -> 0AF40061:0000      Tunnel  1      0          0         \n" +
		"TCP  [fd00:0010:0096:0000:0000:0000:0000:5cf6]:0050 mh (overload) \n" +
		"  -> [fd00:0010:0244:0005:0000:0000:0000:0061]:1F90      Masq    1      0          0         \n" +
		"UDP  0A60000A:0035 twos ops persistent 30000 FFFFFFFF\n"
	table := parseText(t, odd)
	if len(table.servers) != 4 || table.realServers != 2 || table.persistent != 1 || table.repeats() {
		t.Errorf("%d virtual and %d real servers, %d persistent", len(table.servers), table.realServers, table.persistent)
	}
	by := func(context.Context) claims { return handClaims() }
	host := hostOf(t, map[string]string{"proc/net/ip_vs": odd, "proc/net/ip_vs_conn": connHeader})
	content := readIPVS(t.Context(), host, by, noStatistics).GetStable().GetIpvs()
	if content.GetVirtualServers() != 4 || content.GetSamples()[0].GetOwner() != "foreign:fwmark" {
		t.Errorf("%v", content)
	}
	for length := len(ipvsHeader) + 1; length < len(odd); length++ {
		if odd[length-1] == '\n' {
			continue
		}
		host := hostOf(t, map[string]string{"proc/net/ip_vs": odd[:length]})
		if section := readIPVS(t.Context(), host, by, noStatistics); section.GetStable().GetState() != sectionUnreadable {
			t.Fatalf("cut after %d bytes it is %v", length, section.GetStable().GetState())
		}
	}
}

// STATE-07: the sets of IPv6, two of which have names that are cut.
func TestState07SetsOfIPv6(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	var batch strings.Builder
	sets := 0
	for _, set := range kubeproxy.Sets() {
		if !strings.HasPrefix(set.Name, "KUBE-6-") {
			continue
		}
		sets++
		options := " family inet6"
		if set.Type == "bitmap:port" {
			options = " range 0-65535"
		}
		fmt.Fprintf(&batch, "create %s %s%s\n", set.Name, set.Type, options)
	}
	// The same name as IPv4 is not kube-proxy's set.
	batch.WriteString("create KUBE-CLUSTER-IP hash:ip,port family inet6\n")
	run(t, batch.String(), "ipset", "restore")
	content := readTheIPSets(t.Context()).GetStable().GetIpsets()
	owned := map[string]bool{}
	for _, set := range content.GetSamples() {
		if kubeproxy.Owner(set.GetOwner()).IsKubeProxy() {
			owned[set.GetName()] = true
		}
	}
	if sets != 17 || len(owned) != 17 || !owned["KUBE-6-LOAD-BALANCER-SOURCE-CID"] || !owned["KUBE-6-NODE-PORT-LOCAL-SCTP-HAS"] {
		t.Errorf("%d sets of IPv6, owned %v", sets, owned)
	}
}

// One Service as the node sees it: virtual servers on all of its addresses and node ports, with what ipvsadm shows.
func TestServersOfAService(t *testing.T) {
	if !enterNode(t) {
		return
	}
	serveTCP(t, "192.0.2.9:8080")
	run(t, `-A -t 10.96.0.10:80 -s lc -p 600
-a -t 10.96.0.10:80 -r 192.0.2.9:8080 -m -w 1
-a -t 10.96.0.10:80 -r 10.244.9.9:8080 -m -w 0
-A -t 192.0.2.7:30080 -s rr
-A -t 192.0.2.8:30081 -s rr
-A -u 10.96.0.10:80 -s rr
-A -t 10.96.0.11:80 -s rr
`, "ipvsadm", "-R")
	connect(t, "192.0.2.9", "10.96.0.10:80")
	items, err := detail(t, &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Service{Service: &offrampv1.ServiceQuery{
		Protocol: "TCP", Addresses: []string{"10.96.0.10"}, Port: 80, NodePort: 30080,
	}}})
	if err != nil {
		t.Error(err)
	}
	items = slices.DeleteFunc(items, func(item string) bool { return !strings.HasPrefix(item, "ipvs ") && !strings.HasPrefix(item, "  -> ") })
	for i := range items {
		items[i], _, _ = strings.Cut(items[i], " now, ") // the statistics come two seconds late
	}
	slices.Sort(items[1:3])
	if diff := cmp.Diff([]string{
		"ipvs TCP 10.96.0.10:80 lc, persistent, owner kube-proxy/ipvs (address, protocol and port stand in kube-proxy's sets), 1 established connections",
		"  -> 10.244.9.9:8080 Masq weight 0, 0 active and 0 inactive connections",
		"  -> 192.0.2.9:8080 Masq weight 1, 1 active and 0 inactive connections",
		"ipvs TCP 192.0.2.7:30080 rr, owner kube-proxy/ipvs (address of the node with a node port of kube-proxy's sets), 0 established connections",
	}, items); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
