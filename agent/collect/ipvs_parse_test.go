package collect

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
)

const ipvsHeader = "IP Virtual Server version 1.2.1 (size=4096)\n" +
	"Prot LocalAddress:Port Scheduler Flags\n" +
	"  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"

// compareUnexported lets go-cmp look into the types of this package and compare addresses by ==.
func compareUnexported() cmp.Options {
	return cmp.Options{
		cmp.AllowUnexported(virtualServer{}),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
}

func parseText(t *testing.T, text string) *ipvsTable {
	t.Helper()
	table, err := parseIPVS(strings.NewReader(text), testSeed())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var seedForTests = maphash.MakeSeed()

func testSeed() maphash.Seed { return seedForTests }

func TestParseIPVS(t *testing.T) {
	// Spaces, flags and addresses as ip_vs_info_seq_show prints them: IPv6 lines have no space for flags, and no "ops".
	table := parseText(t, ipvsHeader+
		"TCP  0A600001:01BB rr  \n"+
		"  -> C0000202:403B      Masq    1      3          40        \n"+
		"  -> C0000203:403B      Masq    0      1          0         \n"+
		"UDP  0A60000A:0035 lc ops persistent 10800 FFFFFFFF\n"+
		"SCTP [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 sh persistent 300 80000000\n"+
		"  -> [fd00:0010:0244:0001:0000:0000:0000:0010]:14E9      Route   100    0          0         \n"+
		"FWM  00000007 wlc  \n"+
		"  -> C0A80001:0000      Tunnel  1      0          2         \n"+
		"FWM  80000007 wlc ops persistent 360 FFFFFF00\n"+
		"TCP  00000000:0000 none  \n")
	want := []virtualServer{
		{protocol: "TCP", address: netip.MustParseAddrPort("10.96.0.1:443"), scheduler: "rr", realServers: 2},
		{protocol: "UDP", address: netip.MustParseAddrPort("10.96.0.10:53"), scheduler: "lc"},
		{
			protocol: "SCTP", address: netip.MustParseAddrPort("[fd00:10:96::a]:53"), scheduler: "sh",
			realServers: 1, others: 1,
		},
		{protocol: "FWM", fwmark: 7, scheduler: "wlc", realServers: 1, others: 1},
		{protocol: "FWM", fwmark: 0x80000007, scheduler: "wlc"},
		{protocol: "TCP", address: netip.MustParseAddrPort("0.0.0.0:0"), scheduler: "none"},
	}
	if diff := cmp.Diff(want, table.servers, compareUnexported()); diff != "" {
		t.Errorf("virtual servers (-want +got):\n%s", diff)
	}
	if table.realServers != 4 || table.weightZero != 1 || table.active != 4 || table.inactive != 42 {
		t.Errorf("real servers %d, of weight 0 %d, active %d, inactive %d; want 4, 1, 4, 42",
			table.realServers, table.weightZero, table.active, table.inactive)
	}
}

func TestParseIPVSEmpty(t *testing.T) {
	if table := parseText(t, ipvsHeader); len(table.servers) != 0 || table.realServers != 0 {
		t.Errorf("an empty table has %d virtual servers", len(table.servers))
	}
}

func TestParseIPVSRefuses(t *testing.T) {
	const server = "TCP  0A600001:01BB rr  \n"
	for name, text := range map[string]string{
		"nothing at all":                 "",
		"a header that is cut":           ipvsHeader[:60],
		"two lines of header":            strings.SplitAfterN(ipvsHeader, "Flags\n", 2)[0],
		"another file":                   "sk Eth Pid\n" + ipvsHeader,
		"a last line without its end":    ipvsHeader + "TCP  0A600001:01BB rr",
		"a virtual server cut to a word": ipvsHeader + "TCP\n",
		"no scheduler":                   ipvsHeader + "TCP  0A600001:01BB\n",
		"a short address":                ipvsHeader + "TCP  0A6001:01BB rr\n",
		"no port":                        ipvsHeader + "TCP  0A600001 rr\n",
		"a short port":                   ipvsHeader + "TCP  0A600001:1BB rr\n",
		"not hexadecimal":                ipvsHeader + "TCP  0A60000G:01BB rr\n",
		"IPv6 without its bracket":       ipvsHeader + "TCP  [fd00:0010:0096:0000:0000:0000:0000:000a:0035 rr\n",
		"IPv6 in short form":             ipvsHeader + "TCP  [fd00:10:96::a]:0035 rr\n",
		"a mark that is an address":      ipvsHeader + "FWM  0A600001:01BB rr\n",
		"an empty line":                  ipvsHeader + "\n",
		"a real server of nobody":        ipvsHeader + "  -> C0000202:403B      Masq    1      0          0         \n",
		"a real server that is cut":      ipvsHeader + server + "  -> C0000202:403B      Masq    1\n",
		"a real server with more":        ipvsHeader + server + "  -> C0000202:403B      Masq    1      0          0   7\n",
		"a weight that is a word":        ipvsHeader + server + "  -> C0000202:403B      Masq    one    0          0         \n",
		"a line without end":             ipvsHeader + strings.Repeat("x", 1<<17),
	} {
		if table, err := parseIPVS(strings.NewReader(text), testSeed()); err == nil {
			t.Errorf("%s: read as %d virtual servers", name, len(table.servers))
		}
	}
}

func TestParseIPVSSaysWhereItStopped(t *testing.T) {
	_, err := parseIPVS(strings.NewReader(ipvsHeader+"TCP  0A600001:01BB rr"), testSeed())
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "line 4") {
		t.Errorf("error %v", err)
	}
	broken := errors.New("broken pipe")
	if _, err := parseIPVS(io.MultiReader(strings.NewReader(ipvsHeader), iotest.ErrReader(broken)), testSeed()); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the reader", err)
	}
}

func TestParseIPVSCountersThatRanOver(t *testing.T) {
	table := parseText(t, ipvsHeader+"TCP  0A600001:01BB rr  \n  -> C0000202:403B      Masq    1      -1         5         \n")
	if table.active != 0 || table.inactive != 5 {
		t.Errorf("active %d, inactive %d; want 0, 5", table.active, table.inactive)
	}
}

func TestIPVSContentIsWhatMatters(t *testing.T) {
	text := func(server, real string) uint64 {
		return parseText(t, ipvsHeader+server+"\n  -> "+real+"\n").content
	}
	const server, real = "TCP  0A600001:01BB rr  ", "C0000202:403B      Masq    1      0          0         "
	if text(server, real) != text(server, "C0000202:403B      Masq    1      17         4         ") {
		t.Error("connections alone make another content")
	}
	for name, other := range map[string]uint64{
		"weight":      text(server, "C0000202:403B      Masq    0      0          0         "),
		"method":      text(server, "C0000202:403B      Route   1      0          0         "),
		"real server": text(server, "C0000203:403B      Masq    1      0          0         "),
		"scheduler":   text("TCP  0A600001:01BB lc  ", real),
		"port":        text("TCP  0A600001:01BC rr  ", real),
	} {
		if other == text(server, real) {
			t.Errorf("another %s makes the same content", name)
		}
	}
}

// The counts of ../shared/LAB.md, which were taken with ipvsadm.
func TestParseIPVSOfCaptures(t *testing.T) {
	for name, want := range map[string][2]int{
		"ipvs":                     {85, 295},
		"ipvs-then-iptables":       {85, 295},
		"iptables-sync-failed":     {85, 295},
		"after-kube-proxy-cleanup": {0, 0},
		"ipvs-then-nftables":       {0, 0},
	} {
		table := parseText(t, readCapture(t, name, "proc-net-ip_vs.txt"))
		if len(table.servers) != want[0] || int(table.realServers) != want[1] {
			t.Errorf("%s: %d virtual servers, %d real servers; want %v", name, len(table.servers), table.realServers, want)
		}
		if table.repeats() {
			t.Errorf("%s: seems to have a virtual server twice", name)
		}
	}
}

// Every virtual server of the captures is in ipvsadm's own list, and none is missing.
func TestParseIPVSAgreesWithIPVSAdm(t *testing.T) {
	for _, name := range captures.Names() {
		want := map[string]int{}
		for line := range strings.Lines(readCapture(t, name, "ipvsadm-save.txt")) {
			words := strings.Fields(line)
			protocol := map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}[words[1]]
			key := protocol + " " + words[2]
			if words[0] == "-A" {
				want[key] = 0
			} else {
				want[key]++
			}
		}
		got := map[string]int{}
		for _, server := range parseText(t, readCapture(t, name, "proc-net-ip_vs.txt")).servers {
			got[server.item()] = int(server.realServers)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-ipvsadm +ours):\n%s", name, diff)
		}
	}
}

func FuzzParseIPVS(f *testing.F) {
	for _, name := range captures.Names() {
		text, err := captures.Read(name, "proc-net-ip_vs.txt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[:min(len(text), 2000)])
	}
	f.Add([]byte(ipvsHeader + "FWM  00000007 rr ops \n  -> C0A80001:0000      Tunnel  1      0          -2        \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parseIPVS(bytes.NewReader(text), testSeed())
		if err != nil {
			return
		}
		servers := bytes.Count(text, []byte("\n")) - ipvsHeaderLines - int(table.realServers)
		if len(table.servers) != servers {
			t.Errorf("%d virtual and %d real servers from %q", len(table.servers), table.realServers, text)
		}
		// Reading in small pieces is the same as reading at once.
		again, err := parseIPVS(iotest.OneByteReader(bytes.NewReader(text)), testSeed())
		if err != nil || again.content != table.content {
			t.Errorf("in pieces: %v", err)
		}
	})
}

// bigTable is an IPVS table of so many virtual servers with five real servers each.
func bigTable(servers int) []byte {
	text := bytes.NewBufferString(ipvsHeader)
	for i := range servers {
		fmt.Fprintf(text, "TCP  %08X:0050 rr  \n", 0x0A600000+i)
		for j := range 5 {
			fmt.Fprintf(text, "  -> %08X:1F90      Masq    1      %-10d %-10d\n", 0x0AF40000+i*5+j, i, j)
		}
	}
	return text.Bytes()
}

func BenchmarkParseIPVS(b *testing.B) {
	text := bigTable(10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		table, err := parseIPVS(bytes.NewReader(text), testSeed())
		if err != nil || len(table.servers) != 10_000 || table.realServers != 50_000 {
			b.Fatal(err)
		}
	}
}
