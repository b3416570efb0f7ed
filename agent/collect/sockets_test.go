package collect

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	tcpHeader  = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	tcp6Header = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	udpHeader  = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"
)

// As a little-endian kernel prints them: 10.96.0.10 is 0A00600A.
func socketFiles() map[string]string {
	const rest = " 00000000:00000000 00:00000000 00000000     0        0 12345 1 0000000000000000 100 0 0 10 0\n"
	return map[string]string{
		"proc/net/tcp": tcpHeader +
			"   0: 00000000:0016 00000000:0000 0A" + rest + // ssh on the wildcard
			"   1: 0100007F:1F90 00000000:0000 0A" + rest + // on loopback: exposes nothing
			"   2: 0A00600A:B0F8 3D00F40A:0050 01" + rest + // 10.96.0.10:45304 -> 10.244.0.61:80
			"   3: 0A00600A:B0F9 3D00F40A:0050 06" + rest + // over
			"   4: 0A00600A:0035 00000000:0000 0A" + rest + // a listener on the address
			"   5: 070200C0:0016 090200C0:D431 01" + rest, // a session of ssh
		"proc/net/tcp6": tcp6Header +
			"   0: 00000000000000000000000000000000:2802 00000000000000000000000000000000:0000 0A" + rest +
			"   1: 0000000000000000FFFF00000A00600A:B0FA 0000000000000000FFFF00003D00F40A:0050 01" + rest + // mapped
			"   2: 100000FD009600000000000001000000:C350 440200FD000100000000000061000000:0050 08" + rest,
		"proc/net/udp": udpHeader +
			"  10: 00000000:0044 00000000:0000 07" + rest + // DHCP on the wildcard
			"  11: 00000000:9C41 00000000:0000 07" + rest + // a client's: an ephemeral port
			"  12: 0A00600A:9C42 0A00600A:0035 01" + rest, // asks the cluster's DNS
	}
}

func TestSocketsOnTheAddressesOfTheLink(t *testing.T) {
	mine := map[netip.Addr]struct{}{netip.MustParseAddr("10.96.0.10"): {}, netip.MustParseAddr("fd00:10:0:9600::1"): {}}
	host := hostOf(t, socketFiles())
	got, err := readLinkSockets(t.Context(), host, mine)
	if err != nil {
		t.Fatal(err)
	}
	text := func(list []hostSocket) []string {
		var lines []string
		for _, one := range reportSockets(list) {
			lines = append(lines, one.GetProtocol()+" "+one.GetLocal()+" "+one.GetRemote())
		}
		return lines
	}
	if diff := cmp.Diff([]string{
		"tcp 10.96.0.10:53 ",
		"udp 10.96.0.10:40002 10.96.0.10:53",
		"tcp 10.96.0.10:45304 10.244.0.61:80",
		"tcp 10.96.0.10:45306 10.244.0.61:80",
		"tcp [fd00:10:0:9600::1]:50000 [fd00:244:0:100::61]:80",
	}, text(got.samples)); diff != "" || got.count != 5 {
		t.Errorf("%d on the link (-want +got):\n%s", got.count, diff)
	}
	if diff := cmp.Diff([]string{"tcp 0.0.0.0:22 ", "udp 0.0.0.0:68 ", "tcp [::]:10242 "}, text(got.wildcards)); diff != "" {
		t.Errorf("wildcards (-want +got):\n%s", diff)
	}
}

func TestReadSocketsRefuses(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"no table of IPv4": func(f map[string]string) { delete(f, "proc/net/tcp") },
		"another header":   func(f map[string]string) { f["proc/net/udp"] = "sl\n" },
		"cut short":        func(f map[string]string) { f["proc/net/tcp"] += "   6: 0A00" },
		"half a socket":    func(f map[string]string) { f["proc/net/tcp6"] += "   6: 0A00600A:0050\n" },
	} {
		files := socketFiles()
		change(files)
		if err := readSockets(t.Context(), hostOf(t, files), func(hostSocket) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEphemeralPorts(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/sys/net/ipv4/ip_local_port_range": "1024\t2048\n"})
	if got := readEphemeralPorts(host); got != (portRange{1024, 2048}) || !got.contains(2048) || got.contains(2049) {
		t.Errorf("%v", got)
	}
	for _, text := range []string{"", "x y", "1024", "1024 99999999"} {
		host := hostOf(t, map[string]string{"proc/sys/net/ipv4/ip_local_port_range": text})
		if got := readEphemeralPorts(host); got != (portRange{32768, 60999}) {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestSocketSamplesAreBounded(t *testing.T) {
	sockets := &linkSockets{addresses: map[netip.Addr]struct{}{netip.MustParseAddr("10.96.0.10"): {}}}
	for i := range 300 {
		port := uint16(1 + i*7%300)
		sockets.see(hostSocket{protocol: "tcp", local: netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), port), state: socketEstablished})
		listener := hostSocket{protocol: "tcp", local: netip.AddrPortFrom(netip.IPv4Unspecified(), port), state: socketListening}
		sockets.see(listener)
		sockets.see(listener) // SO_REUSEPORT
	}
	if sockets.count != 300 || len(sockets.samples) != 20 || len(sockets.wildcards) != 64 {
		t.Errorf("%d, %d samples, %d wildcards", sockets.count, len(sockets.samples), len(sockets.wildcards))
	}
	if first, last := sockets.wildcards[0].local.Port(), sockets.wildcards[63].local.Port(); first != 1 || last != 64 {
		t.Errorf("ports %d to %d", first, last)
	}
}

func FuzzParseSockets(f *testing.F) {
	for _, text := range socketFiles() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		seen := 0
		err := parseSockets(t.Context(), strings.NewReader(text), "tcp", func(one hostSocket) {
			seen++
			if !one.local.IsValid() || !one.remote.IsValid() {
				t.Errorf("%+v", one)
			}
		})
		if lines := strings.Count(text, "\n"); err == nil && seen != lines-1 {
			t.Errorf("%d sockets in %d lines", seen, lines)
		}
	})
}

func BenchmarkParseSockets(b *testing.B) {
	var text strings.Builder
	text.WriteString(tcpHeader)
	for i := range 10_000 {
		fmt.Fprintf(&text, "%4d: 070200C0:0016 %08X:D431 01 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0 0 10 0\n", i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := parseSockets(b.Context(), strings.NewReader(text.String()), "tcp", func(hostSocket) {}); err != nil {
			b.Fatal(err)
		}
	}
}

// A list is left out only where the kernel says that no socket is in it.
func TestListsOfNoSocketsAreNotRead(t *testing.T) {
	host := hostOf(t, map[string]string{
		"proc/net/sockstat":  "sockets: used 17\nTCP: inuse 0 orphan 0 tw 1 alloc 2 mem 47\nUDP: inuse 2 mem 0\n",
		"proc/net/sockstat6": "TCP6: inuse 10\nUDP6: inuse 0\n",
	})
	for file, want := range map[string]bool{"tcp": true, "udp": false, "tcp6": false, "udp6": true} {
		if got := hasNoSockets(host, file); got != want {
			t.Errorf("%s: no sockets %v, want %v", file, got, want)
		}
	}
	if hasNoSockets(Host{Proc: t.TempDir()}, "tcp") {
		t.Error("no sockets where nothing counts them")
	}
}
