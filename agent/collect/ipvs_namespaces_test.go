package collect

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ownServers are 300 virtual servers of IPv4, IPv6 and firewall marks with two real servers each, as "ipvsadm -R" takes them.
// Some are persistent, of one packet, or not masqueraded; two marks are there in both families.
func ownServers() string {
	var text strings.Builder
	add := func(name, flags, forward string, ipv6 bool, n int) {
		fmt.Fprintf(&text, "-A %s %s\n", name, flags)
		for real := range 2 {
			at := fmt.Sprintf("10.244.%d.%d:8080", real, n)
			if ipv6 {
				at = fmt.Sprintf("[fd00:10:244::%x:%x]:8080", real, n)
			}
			fmt.Fprintf(&text, "-a %s -r %s %s -w %d\n", name, at, forward, real)
		}
	}
	for i := range 200 {
		add(fmt.Sprintf("-%s 10.96.0.%d:%d", []string{"t", "u"}[i%2], i, 80+i), []string{"-s rr", "-s lc -p 10800"}[i/2%2], "-m", false, i)
	}
	for i := range 60 {
		add(fmt.Sprintf("-t [fd00:10:96::%x]:443", i+1), "-s wlc", "-m", true, i)
	}
	for i := range 38 {
		add(fmt.Sprintf("-f %d", i+1), "-s rr -o", "-g", false, i)
	}
	for i := range 2 {
		add(fmt.Sprintf("-f %d -6", i+1), "-s rr", "-i", true, i)
	}
	return text.String()
}

// otherServers are 200 of another network namespace, which the kernel keeps in the same table.
func otherServers() string {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "-A -t 10.97.%d.%d:80 -s rr\n-a -t 10.97.%d.%d:80 -r 10.244.0.9:80 -m\n", i, i, i, i)
	}
	for i := range 60 {
		fmt.Fprintf(&text, "-A -t [fd00:10:97::%x]:443 -s rr\n", i+1)
	}
	for i := range 40 {
		fmt.Fprintf(&text, "-A -f %d -s rr\n", i+1)
	}
	return text.String()
}

// enterBesideAnother goes into a namespace with ownServers, beside one with otherServers.
func enterBesideAnother(t *testing.T) bool {
	t.Helper()
	if !enterForIPVS(t) {
		return false
	}
	// Its name is a mount of this test's own, with which it goes.
	run(t, otherServers(), "sh", "-c", "ip netns add other && ip netns exec other ipvsadm -R")
	run(t, ownServers(), "ipvsadm", "-R")
	return true
}

// savedLines are the lines of "ipvsadm -Sn" with their words in our own order: name, scheduler or real server, method, weight.
func savedLines(t *testing.T) (servers, items, lines []string) {
	t.Helper()
	protocols := map[string]string{"-t": "TCP", "-u": "UDP", "-f": "FWM"}
	for line := range strings.Lines(run(t, "", "ipvsadm", "-Sn")) {
		words := strings.Fields(line)
		name := protocols[words[1]] + " " + words[2]
		words = slices.DeleteFunc(words, func(word string) bool { return word == "-6" })
		if words[0] == "-A" {
			servers = append(servers, name+" "+words[4])
			items = append(items, name)
			lines = append(lines, fmt.Sprint(name, " ", words[4], " persistent=", slices.Contains(words, "-p"), " ops=", slices.Contains(words, "-o")))
			continue
		}
		method := map[string]string{"-m": "Masq", "-g": "Route", "-i": "Tunnel"}[words[5]]
		lines = append(lines, fmt.Sprint(name, " -> ", words[4], " ", method, " ", words[7]))
	}
	slices.Sort(lines)
	return servers, items, lines
}

func inventoryLines(servers []inventory.VirtualServer) []string {
	var lines []string
	for _, server := range servers {
		name := server.Protocol + " " + server.Address.String()
		if server.Protocol == fwmProtocol {
			name = fmt.Sprint(fwmProtocol, " ", server.FWMark)
		}
		ops := strings.Contains(server.Flags, "ops")
		lines = append(lines, fmt.Sprint(name, " ", server.Scheduler, " persistent=", strings.Contains(server.Flags, "persistent"), " ops=", ops))
		for _, real := range server.RealServers {
			lines = append(lines, fmt.Sprint(name, " -> ", real.Address, " ", real.Forward, " ", real.Weight))
		}
	}
	slices.Sort(lines)
	return lines
}

// The kernel loses entries of /proc/net/ip_vs where another network namespace has virtual servers. Every reader still tells
// what ipvsadm tells.
func TestIPVSBesideAnotherNamespace(t *testing.T) {
	if !enterBesideAnother(t) {
		return
	}
	servers, items, lines := savedLines(t)
	if len(servers) != 300 || len(lines) != 900 {
		t.Fatalf("ipvsadm: %d virtual servers and %d lines, want 300 and 900", len(servers), len(lines))
	}
	scanner := newScanner(t)
	section := facts.Find(scanner.Scan(t.Context()), kindIPVS)
	wantState(t, section, sectionPresent)
	content := section.GetStable().GetIpvs()
	// Of each pair of real servers one has weight 0.
	if content.GetVirtualServers() != 300 || content.GetRealServers() != 600 || content.GetRealServersWeightZero() != 300 || content.GetPersistent() != 100 {
		t.Errorf("%d virtual and %d real servers, %d of weight 0, %d persistent; want 300, 600, 300, 100", content.GetVirtualServers(),
			content.GetRealServers(), content.GetRealServersWeightZero(), content.GetPersistent())
	}
	want := facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, items)
	if !bytes.Equal(want.GetDigest(), content.GetList().GetDigest()) {
		t.Errorf("another list of virtual servers than that of ipvsadm: %v, want %v", content.GetList(), want)
	}
	if attempts := section.GetVolatile().GetAttempts(); attempts != 2 {
		t.Errorf("read %d times, want 2", attempts)
	}
	_, node := newScanner(t).Exact(t.Context())
	if diff := cmp.Diff(lines, inventoryLines(node.Servers)); diff != "" {
		t.Errorf("ipvsadm (-) and the exact reader (+):\n%s", diff)
	}
	checkServersInDetail(t)
}

// checkServersInDetail asks for one in nineteen of the virtual servers of IPv4 by its Service.
func checkServersInDetail(t *testing.T) {
	t.Helper()
	for i := 0; i < 200; i += 19 {
		address := netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})
		query, protocol := &serviceQuery{protocol: 6, port: uint16(80 + i), addresses: []netip.Addr{address}}, "TCP"
		if i%2 == 1 {
			query.protocol, protocol = 17, "UDP"
		}
		found, err := newScanner(t).readServers(t.Context(), query)
		if err != nil || len(found) != 1 {
			t.Fatalf("%s %v: %d virtual servers, %v", protocol, address, len(found), err)
		}
		want := []string{
			fmt.Sprintf("  -> 10.244.0.%d:8080 Masq weight 0, 0 active and 0 inactive connections", i),
			fmt.Sprintf("  -> 10.244.1.%d:8080 Masq weight 1, 0 active and 0 inactive connections", i),
		}
		slices.Sort(found[0].reals)
		if diff := cmp.Diff(want, found[0].reals); diff != "" || found[0].protocol != protocol || found[0].persistent != (i/2%2 == 1) {
			t.Errorf("%s %v (-want +got):\n%s", found[0].protocol, found[0].address, diff)
		}
	}
}

// What the kernel prints and what is put together from generic netlink are the same, but for the time of persistent ones.
func TestIPVSTextIsThatOfTheKernel(t *testing.T) {
	if !enterForIPVS(t) {
		return
	}
	run(t, ownServers(), "ipvsadm", "-R")
	read := func(reader *ipvsReader) (lines []string) {
		_, err := reader.read(t.Context(), func() ipvsVisitor {
			lines = nil
			return func(_ *virtualServer, line []byte) {
				text, _, _ := strings.Cut(string(line), "persistent")
				lines = append(lines, text)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	file, netlink := newIPVSReader(DefaultHost()), newIPVSReader(DefaultHost())
	netlink.overNetlink = true
	want := read(file)
	if file.overNetlink || !file.isProven {
		t.Fatal("the file was not enough, or not compared")
	}
	if diff := cmp.Diff(want, read(netlink)); diff != "" || len(want) != 900 {
		t.Errorf("%d lines; the kernel (-) and ours (+):\n%s", len(want), diff)
	}
}

// Without the right to ask for the kernel's list the file is all there is.
func TestIPVSWithoutTheRightToAsk(t *testing.T) {
	if !enterForIPVS(t) {
		return
	}
	run(t, ownServers(), "ipvsadm", "-R")
	section := facts.Find(scanWith(t), kindIPVS)
	wantState(t, section, sectionPresent)
	if got := section.GetStable().GetIpvs().GetVirtualServers(); got != 300 {
		t.Errorf("%d virtual servers, want 300", got)
	}
}

func TestCompareWithTheKernelsList(t *testing.T) {
	a := ipvsService{family: 2, protocol: 6, rawAddress: [16]byte{10, 96, 0, 1}, port: 443}
	b := ipvsService{family: 2, protocol: 17, rawAddress: [16]byte{10, 96, 0, 1}, port: 443}
	mark4, mark6 := ipvsService{family: 2, fwmark: 7}, ipvsService{family: 10, fwmark: 7}
	tcp := virtualServer{protocol: "TCP", address: netip.MustParseAddrPort("10.96.0.1:443")}
	udp := virtualServer{protocol: "UDP", address: netip.MustParseAddrPort("10.96.0.1:443")}
	mark := virtualServer{protocol: "FWM", fwmark: 7}
	for name, c := range map[string]struct {
		table []virtualServer
		list  []ipvsService
		want  error
	}{
		"the same":               {[]virtualServer{tcp, udp, mark, mark}, []ipvsService{a, b, mark4, mark6}, nil},
		"another order":          {[]virtualServer{udp, tcp}, []ipvsService{a, b}, nil},
		"none":                   {nil, nil, nil},
		"one is lost":            {[]virtualServer{tcp}, []ipvsService{a, b}, errLost},
		"a mark of two is lost":  {[]virtualServer{tcp, mark}, []ipvsService{a, mark4, mark6}, errLost},
		"all are lost":           {nil, []ipvsService{a}, errLost},
		"one is gone since":      {[]virtualServer{tcp, udp}, []ipvsService{a}, errTorn},
		"one for another":        {[]virtualServer{tcp}, []ipvsService{b}, errTorn},
		"a mark is there thrice": {[]virtualServer{mark, mark, mark}, []ipvsService{mark4, mark6}, errTorn},
	} {
		if got := (&ipvsTable{servers: c.table}).compare(c.list); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Whatever the kernel's answers are made of, they are read or refused, and a line that was put together is understood.
func FuzzIPVSMessages(f *testing.F) {
	server := ipvsService{family: 2, protocol: 6, rawAddress: [16]byte{10, 96, 0, 1}, port: 443, scheduler: "rr"}
	f.Add(server.attribute().Serialize()[4:])
	f.Fuzz(func(t *testing.T, data []byte) {
		service, err := parseIPVSService(data)
		if err == nil && service.scheduler != "" && !strings.ContainsAny(service.scheduler, " \n") {
			text := bytes.NewBufferString(ipvsHeader)
			service.appendLine(text)
			table, err := parseIPVS(text, testSeed())
			if err != nil || len(table.servers) != 1 || table.compare([]ipvsService{service}) != nil {
				t.Errorf("%+v: %v", service, err)
			}
		}
		dest := ipvsDest{ipvsService: service}
		if dest.parse(data) == nil {
			text := bytes.NewBufferString(ipvsHeader + "TCP  0A600001:0050 rr  \n")
			dest.appendLine(text)
			if _, err := parseIPVS(text, testSeed()); err != nil {
				t.Errorf("%+v: %v", dest, err)
			}
		}
	})
}
