package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// fixed is a kernel that counted these for each virtual server.
func fixed(counts map[string]serverStatistics) statisticsReader {
	return func(_ context.Context, visit func(serverKey, serverStatistics)) error {
		for text, count := range counts {
			protocol, address, _ := strings.Cut(text, " ")
			visit(serverKey{protocol, netip.MustParseAddrPort(address)}, count)
		}
		return nil
	}
}

func claimed(context.Context) claims { return handClaims() }

// Which connections count: established ones of virtual servers that are not somebody else's.
func TestTrafficOfATable(t *testing.T) {
	host := hostOf(t, map[string]string{
		"proc/net/ip_vs": handTable,
		"proc/net/ip_vs_conn": connHeader +
			"TCP 0A000005 A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n" + // node port
			"TCP 0A000003 A1B3 C0000207 7580 0AF40061 1F90 TIME_WAIT        60\n" + // node port, over
			"TCP 0A000002 0000 C0000207 7580 0AF40061 1F90 ASSURED       10799\n" + // affinity
			"TCP 0A000002 A1B4 0A600001 01BB 0AF40061 1F90 ESTABLISHED     899\n" + // a Service
			"TCP 0A000002 A1B5 0A600009 0050 0AF40061 1F90 ESTABLISHED     899\n" + // unknown owner: it might be cut
			"TCP 0A000002 A1B6 0A066EA6 A350 0AF40061 1F90 ESTABLISHED     899\n" + // keepalived's
			"TCP 0A000002 A1B7 0A066EA7 A350 0AF40061 1F90 ESTABLISHED     899\n", // a virtual server that is gone
	})
	section := readIPVS(t.Context(), host, claimed, fixed(map[string]serverStatistics{
		"TCP 192.0.2.7:30080": {connections: 1 << 40, incomingPackets: 1 << 41}, "TCP 10.96.0.1:443": {connections: 3},
	}))
	wantState(t, section, sectionPresent)
	want := &offrampv1.IpvsVolatile{
		ActiveConnections: 3, InactiveConnections: 40, EstablishedConnections: 3,
		NodePorts: []*offrampv1.NodePortTraffic{{
			Protocol: "TCP", Address: "192.0.2.7", Port: 30080, Connections: 1 << 40, IncomingPackets: 1 << 41,
			Clients: []string{"10.0.0.3", "10.0.0.5"},
		}},
	}
	if diff := cmp.Diff(want, section.GetVolatile().GetIpvs(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTrafficThatCannotBeRead(t *testing.T) {
	refused := func(context.Context, func(serverKey, serverStatistics)) error { return errors.New("not permitted") }
	host := hostOf(t, map[string]string{"proc/net/ip_vs": handTable, "proc/net/ip_vs_conn": connHeader + "TCP"})
	section := readIPVS(t.Context(), host, claimed, refused)
	// What the table says stands by itself.
	wantState(t, section, sectionPresent)
	got := section.GetVolatile().GetIpvs()
	if got.GetEstablishedConnections() != 0 || !strings.Contains(got.GetTrafficError(), "not permitted") ||
		!strings.Contains(got.GetTrafficError(), "line 2 of the IPVS connections") {
		t.Errorf("%v", got)
	}
	if ports := got.GetNodePorts(); len(ports) != 1 || ports[0].GetConnections() != 0 {
		t.Errorf("node ports %v", ports)
	}
	if section.GetStable().GetIpvs().GetVirtualServers() != 5 {
		t.Error("the table is lost with the traffic")
	}
}

// Without attribution nothing is known to be somebody else's, so everything counts.
func TestTrafficWithoutOwners(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": handTable, "proc/net/ip_vs_conn": connHeader +
		"TCP 0A000002 A1B6 0A066EA6 A350 0AF40061 1F90 ESTABLISHED     899\n"})
	section := readIPVS(t.Context(), host, func(context.Context) claims { return claims{err: errors.New("no")} }, noStatistics)
	if got := section.GetVolatile().GetIpvs().GetEstablishedConnections(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestNodePortsAreBoundedBusiestFirst(t *testing.T) {
	by := handClaims()
	var table strings.Builder
	table.WriteString(ipvsHeader)
	counts := map[string]serverStatistics{}
	for i := range 200 {
		port := 30000 + i
		fmt.Fprintf(&table, "TCP  C0000207:%04X rr  \n", port)
		by.ports.nodes[nodePort{"TCP", uint16(port), 4}] = struct{}{}
		counts[fmt.Sprintf("TCP 192.0.2.7:%d", port)] = serverStatistics{connections: uint64(i * 7 % 200)}
	}
	host := hostOf(t, map[string]string{"proc/net/ip_vs": table.String(), "proc/net/ip_vs_conn": connHeader})
	section := readIPVS(t.Context(), host, func(context.Context) claims { return by }, fixed(counts))
	ports := section.GetVolatile().GetIpvs().GetNodePorts()
	if len(ports) != 64 || ports[0].GetConnections() != 199 || ports[63].GetConnections() != 136 {
		t.Errorf("%d node ports, %v to %v", len(ports), ports[0], ports[len(ports)-1])
	}
	if err := facts.CheckVolatile(kindIPVS, section.GetVolatile()); err != nil {
		t.Error(err)
	}
}

// STATE-29: kube-proxy was killed between making its probe and deleting it.
func TestState29KubeProxysProbe(t *testing.T) {
	const probe = "TCP  C6336400:4E20 rr  \n"
	for name, test := range map[string]struct {
		table    string
		excluded string
		left     bool
		owner    string
	}{
		"the probe":         {ipvsHeader + probe, "203.0.113.0/24", true, "kube-proxy/ipvs"},
		"with real servers": {ipvsHeader + probe + "  -> C0000202:403B      Masq    1      0          0         \n", "203.0.113.0/24", false, "foreign:unidentified"},
		"excluded":          {ipvsHeader + probe, "198.51.100.0/24", false, "foreign:excluded"},
	} {
		by := handClaims()
		by.excluded = parseCIDRs([]string{test.excluded, "no CIDR"})
		host := hostOf(t, map[string]string{"proc/net/ip_vs": test.table, "proc/net/ip_vs_conn": connHeader})
		got := readIPVS(t.Context(), host, func(context.Context) claims { return by }, noStatistics).GetStable().GetIpvs()
		if got.GetProbeLeft() != test.left || got.GetSamples()[0].GetOwner() != test.owner {
			t.Errorf("%s: left %v, owner %s", name, got.GetProbeLeft(), got.GetSamples()[0].GetOwner())
		}
		if diff := cmp.Diff([]string{test.excluded}, got.GetExcludeCidrs()); diff != "" {
			t.Errorf("%s: excluded CIDRs (-want +got):\n%s", name, diff)
		}
	}
}

func TestPersistentVirtualServersAreCounted(t *testing.T) {
	table := parseText(t, ipvsHeader+
		"TCP  0A600001:01BB lc persistent 1080000 FFFFFFFF\n"+
		"TCP  0A600002:01BB lc ops persistent 30000 FFFFFFFF\n"+
		"UDP  0A600002:01BB lc ops \n"+
		"TCP  0A600003:01BB persistent \n"+ // a scheduler of that name
		"TCP  [fd00:0010:0096:0000:0000:0000:0000:5cf6]:0050 lc persistent 1080000 00000080\n"+
		"FWM  00000007 wlc persistent 90000 FFFFFFFF\n")
	if table.persistent != 4 {
		t.Errorf("%d persistent, want 4", table.persistent)
	}
}

// Flows of UDP are told apart: they are there until 300 s after their last packet.
func TestTrafficTellsFlowsOfUDP(t *testing.T) {
	tcp, udp := serverKey{"TCP", netip.MustParseAddrPort("10.96.0.1:443")}, serverKey{"UDP", netip.MustParseAddrPort("10.96.0.10:53")}
	counted := &traffic{cuttable: map[serverKey]struct{}{tcp: {}, udp: {}}, nodePorts: map[serverKey]*nodePortTraffic{}}
	for _, one := range []connection{
		{server: tcp, established: true}, {server: udp, established: true}, {server: udp, established: true}, {server: udp, established: true, template: true},
		{server: tcp},
	} {
		counted.see(one)
	}
	if counted.established != 3 || counted.udp != 2 {
		t.Errorf("%d established, %d of UDP", counted.established, counted.udp)
	}
}
