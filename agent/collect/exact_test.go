package collect

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
)

// procWith is a proc file system with this IPVS table.
func procWith(t *testing.T, table string) Host {
	t.Helper()
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "net/ip_vs"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	return Host{Proc: proc}
}

// The virtual servers of the captures, with their real servers, are those that ipvsadm saved.
func TestExactVirtualServersOfCaptures(t *testing.T) {
	for _, name := range captures.Names() {
		table, err := captures.Read(name, "proc-net-ip_vs.txt")
		if err != nil {
			continue
		}
		for _, skew := range []int{0, 100, 2048} {
			reader := newIPVSReader(procWith(t, string(table)))
			reader.skew = skew
			servers, err := readExactIPVS(t.Context(), reader)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(savedServers(t, readCapture(t, name, "ipvsadm-save.txt")), exactLines(servers)); diff != "" {
				t.Errorf("%s: ipvsadm (-) and exact (+):\n%s", name, diff)
			}
		}
	}
}

// exactLines are servers as "PROTOCOL ADDRESS SCHEDULER" and "PROTOCOL ADDRESS -> ADDRESS WEIGHT", sorted.
func exactLines(servers []inventory.VirtualServer) []string {
	lines := []string{}
	for _, server := range servers {
		at := server.Protocol + " " + server.Address.String()
		lines = append(lines, at+" "+server.Scheduler)
		for _, real := range server.RealServers {
			if real.Forward != "Masq" || real.Weight != 1 {
				lines = append(lines, "odd")
			}
			lines = append(lines, at+" -> "+real.Address.String())
		}
	}
	slices.Sort(lines)
	return lines
}

// savedServers reads "ipvsadm -Sn".
func savedServers(t *testing.T, saved string) []string {
	t.Helper()
	protocols := map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}
	lines := []string{}
	for line := range strings.Lines(saved) {
		fields := strings.Fields(line)
		at := protocols[fields[1]] + " " + netip.MustParseAddrPort(fields[2]).String()
		if fields[0] == "-A" {
			lines = append(lines, at+" "+fields[4])
			continue
		}
		lines = append(lines, at+" -> "+netip.MustParseAddrPort(fields[4]).String())
	}
	slices.Sort(lines)
	return lines
}

func TestExactVirtualServersOfOtherKinds(t *testing.T) {
	const header = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
	got, err := readExactIPVS(t.Context(), newIPVSReader(procWith(t, header+
		"FWM  00000007 rr persistent 30000 FFFFFFFF\n  -> 0A000001:0050      Route   0      2          1         \n"+
		"UDP  0A600001:0035 mh (flag-1,flag-2) ops\n")))
	want := []inventory.VirtualServer{
		{Protocol: "FWM", FWMark: 7, Scheduler: "rr", Flags: "persistent 30000 FFFFFFFF", RealServers: []inventory.RealServer{
			{Address: netip.MustParseAddrPort("10.0.0.1:80"), Forward: "Route"}}},
		{Protocol: "UDP", Address: netip.MustParseAddrPort("10.96.0.1:53"), Scheduler: "mh", Flags: "(flag-1,flag-2) ops"},
	}
	comparer := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, got, comparer); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, broken := range []string{"TCP\n", "TCP 0A60 rr\n", "  -> 0A000001:0050 Masq 1 0 0\n", "TCP 0A600001:0050 rr\n  -> x Masq 1 0 0\n", "TCP 0A600001:0050 rr"} {
		if _, err := readExactIPVS(t.Context(), newIPVSReader(procWith(t, header+broken))); err == nil {
			t.Errorf("%q is understood", broken)
		}
	}
}

func TestKubeconfigServers(t *testing.T) {
	cases := map[string][]inventory.APIServer{
		"clusters:\n- name: a\n  cluster: {server: \"https://10.96.0.1:443\"}\n- cluster: {server: https://api.example}\n": {
			{Host: "10.96.0.1", Port: 443}, {Host: "api.example", Port: 443}},
		"clusters: [{cluster: {server: 'https://[fd00::1]:6443/path'}}]": {{Host: "fd00::1", Port: 6443}},
		"clusters: [{cluster: {server: 'http://127.0.0.1'}}]":            {{Host: "127.0.0.1", Port: 80}},
		"clusters: [{cluster: {server: 'ftp://127.0.0.1'}}]":             nil,
		"clusters: [{cluster: {server: ''}}]":                            nil,
		"apiVersion: v1\nkind: Config\n":                                 nil,
		"- a\n":                                                          nil, "\x00": nil, "": nil,
	}
	for text, want := range cases {
		if diff := cmp.Diff(want, parseKubeconfig([]byte(text))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestNamesOfSets(t *testing.T) {
	e := &exact{sets: setNames{3: kubeproxy.Set{Name: "KUBE-CLUSTER-IP"}}}
	if got := e.nameSets([]uint16{3, 9}); !slices.Equal(got, []string{"KUBE-CLUSTER-IP", "#9"}) {
		t.Errorf("names %q", got)
	}
	if got := e.nameSets(nil); got != nil {
		t.Errorf("names %q", got)
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("clusters:\n- cluster: {server: https://10.96.0.1:443}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, server := range parseKubeconfig(text) {
			if server.Host == "" {
				t.Error("a server without a host")
			}
		}
	})
}

func FuzzExactVirtualServers(f *testing.F) {
	f.Add([]byte("TCP  0A600001:01BB lc  "), []byte("  -> C0000202:403B      Masq    1      0          0         "))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		servers, err := addIPVSLine(nil, first)
		if err == nil {
			servers, err = addIPVSLine(servers, second)
		}
		if err == nil && len(servers) == 0 {
			t.Error("understood, and nothing was read")
		}
	})
}
