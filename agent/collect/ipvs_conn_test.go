package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const connHeader = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"

// As kernel 6.1 prints them (ip_vs_conn_seq_show): IPv6 without brackets, states padded to eleven.
const connTable = connHeader +
	"TCP 0A000002 A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n" + // 10.0.0.2 to the node port 192.0.2.7:30080
	"TCP 0A000003 A1B3 C0000207 7580 0AF40061 1F90 TIME_WAIT        60\n" +
	"TCP 0A000002 0000 C0000207 7580 0AF40061 1F90 ASSURED       10799\n" + // session affinity
	"TCP 0A000002 A1B4 0A600001 01BB 0AF40061 1F90 SYN_RECV         59\n" +
	"UDP 0A000002 A1B5 0A60000A 0035 0AF40061 1F90 UDP             299\n" +
	"SCTP 0A000002 A1B6 0A60000A 0084 0AF40061 1F90 ESTABLISHED     899\n" +
	"SCTP 0A000002 A1B6 0A60000A 0085 0AF40061 1F90 SHUTDOWN_ACK_SENT       3\n" +
	"TCP fd00:0000:0000:0000:0000:0000:0000:0001 A1B7 fd00:0010:0096:0000:0000:0000:0000:000a 0050 fd00:0010:0244:0001:0000:0000:0000:0061 1F90 ESTABLISHED     900\n" +
	"UDP 0A000009 A1B8 0A60000A 0035 0AF40061 1F90 UDP             299 sip 123@example\n" +
	"IP  0A000009 0000 00000007 0000 0AF40061 1F90 NONE            299\n"

func parseConnTable(t *testing.T, text string) []connection {
	t.Helper()
	var list []connection
	if err := parseConnections(t.Context(), strings.NewReader(text), func(c connection) { list = append(list, c) }); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestParseConnections(t *testing.T) {
	var got []string
	for _, c := range parseConnTable(t, connTable) {
		got = append(got, fmt.Sprint(c.client, " ", c.server.protocol, " ", c.server.address, " established=", c.established, " template=", c.template))
	}
	if diff := cmp.Diff([]string{
		"10.0.0.2:41394 TCP 192.0.2.7:30080 established=true template=false",
		"10.0.0.3:41395 TCP 192.0.2.7:30080 established=false template=false",
		"10.0.0.2:0 TCP 192.0.2.7:30080 established=false template=true",
		"10.0.0.2:41396 TCP 10.96.0.1:443 established=false template=false",
		"10.0.0.2:41397 UDP 10.96.0.10:53 established=true template=false",
		"10.0.0.2:41398 SCTP 10.96.0.10:132 established=true template=false",
		"10.0.0.2:41398 SCTP 10.96.0.10:133 established=false template=false",
		"[fd00::1]:41399 TCP [fd00:10:96::a]:80 established=true template=false",
		"10.0.0.9:41400 UDP 10.96.0.10:53 established=true template=false",
		"10.0.0.9:0  0.0.0.7:0 established=false template=true",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list := parseConnTable(t, connHeader); len(list) != 0 {
		t.Errorf("an empty table holds %v", list)
	}
}

func TestParseConnectionsRefuses(t *testing.T) {
	good := "TCP 0A000002 A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n"
	for name, text := range map[string]string{
		"nothing":            "",
		"another header":     "TCP 0A000002\n",
		"cut short":          connHeader + good + "TCP 0A0000",
		"a field is missing": connHeader + "TCP 0A000002 A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED\n",
		"half an address":    connHeader + "TCP 0A00000 A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n",
		"brackets":           connHeader + "TCP [fd00::1] A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n",
		"a port too long":    connHeader + "TCP 0A000002 A1B2A C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n",
		"an empty line":      connHeader + "\n",
		"a line too long":    connHeader + strings.Repeat("x", 1<<17) + "\n",
	} {
		if err := parseConnections(t.Context(), strings.NewReader(text), func(connection) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseConnectionsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	line := "TCP 0A000002 A1B2 C0000207 7580 0AF40061 1F90 ESTABLISHED     899\n"
	seen := 0
	err := parseConnections(ctx, strings.NewReader(connHeader+strings.Repeat(line, 5000)), func(connection) { seen++ })
	if !errors.Is(err, context.Canceled) || seen > 1024 {
		t.Errorf("%d connections, %v", seen, err)
	}
}

func FuzzParseConnections(f *testing.F) {
	f.Add(connTable)
	f.Add(connHeader + "TCP 0A000002 A1B2")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n")
		seen := 0
		err := parseConnections(t.Context(), strings.NewReader(text), func(c connection) {
			seen++
			if c.established && c.server.protocol == "" || !c.client.IsValid() || !c.server.address.IsValid() {
				t.Errorf("%+v", c)
			}
		})
		if err == nil && (seen != lines-1 || !strings.HasSuffix(text, "\n")) {
			t.Errorf("%d connections in %d lines of %q", seen, lines, text)
		}
		if err != nil && seen > lines {
			t.Errorf("%d connections in %d lines", seen, lines)
		}
	})
}

func manyConnections(count int) string {
	var table strings.Builder
	table.WriteString(connHeader)
	for i := range count {
		fmt.Fprintf(&table, "TCP 0A%06X %04X 0A60%04X 0050 0AF40061 1F90 %-11s %7d\n", i, 1024+i%60000, i%10000, "ESTABLISHED", i%900)
	}
	return table.String()
}

func TestParsingConnectionsAllocatesNothingEach(t *testing.T) {
	text := manyConnections(10_000)
	allocations := testing.AllocsPerRun(5, func() {
		if err := parseConnections(t.Context(), strings.NewReader(text), func(connection) {}); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 20 {
		t.Errorf("%.0f allocations for 10,000 connections", allocations)
	}
}

func BenchmarkParseConnections(b *testing.B) {
	text := manyConnections(100_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := parseConnections(b.Context(), strings.NewReader(text), func(connection) {}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestClientsOfANodePortAreBoundedAndSorted(t *testing.T) {
	port := &nodePortTraffic{}
	for i := range 100 {
		port.addClient(netip.AddrFrom4([4]byte{10, 0, 0, byte(i * 37 % 100)}))
		port.addClient(netip.AddrFrom4([4]byte{10, 0, 0, byte(i * 37 % 100)}))
	}
	if len(port.clients) != 20 || port.clients[0].String() != "10.0.0.0" || port.clients[19].String() != "10.0.0.19" {
		t.Errorf("%v", port.clients)
	}
}

func TestReadConnectionsThatAreNotThere(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": ipvsHeader})
	if err := readConnections(t.Context(), host, func(connection) {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := parseConnections(t.Context(), io.LimitReader(strings.NewReader(connTable), 200), func(connection) {}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
}
