package render

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func sectionText(section *offrampv1.Section) string {
	var p page
	p.section(section)
	return p.text.String()
}

func wantLines(t *testing.T, got string, lines ...string) {
	t.Helper()
	if want := strings.Join(lines, "\n") + "\n"; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// The five states read differently, in each section that has them.
func TestStatesInWords(t *testing.T) {
	absent, empty := offrampv1.SectionState_SECTION_STATE_ABSENT, offrampv1.SectionState_SECTION_STATE_EMPTY
	unreadable, inconsistent := offrampv1.SectionState_SECTION_STATE_UNREADABLE, offrampv1.SectionState_SECTION_STATE_INCONSISTENT
	tests := []struct {
		kind  offrampv1.SectionKind
		state offrampv1.SectionState
		err   string
		want  string
	}{
		{offrampv1.SectionKind_SECTION_KIND_IPVS, absent, "", "  ipvs: absent (the kernel has no ip_vs loaded)"},
		{offrampv1.SectionKind_SECTION_KIND_IPVS, empty, "", "  ipvs: empty (ip_vs is loaded and has no virtual server)"},
		{offrampv1.SectionKind_SECTION_KIND_IPVS, unreadable, "no such device", "  ipvs: unreadable (no such device)"},
		{offrampv1.SectionKind_SECTION_KIND_IPVS, inconsistent, "it moved", "  ipvs: inconsistent (it moved)"},
		{offrampv1.SectionKind_SECTION_KIND_IPVS_LINK, absent, "", "  kube-ipvs0: absent (there is no link of this name)"},
		{offrampv1.SectionKind_SECTION_KIND_IPSETS, absent, "", "  ipsets: absent (the kernel has no ip_set loaded)"},
		{offrampv1.SectionKind_SECTION_KIND_IPSETS, empty, "", "  ipsets: empty (ip_set is loaded and has no set)"},
		{offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, absent, "", "  iptables-nft IPv4: absent (the kernel has nothing of this backend loaded)"},
		{offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, empty, "", "  iptables-legacy IPv6: empty (this backend is loaded and has no table)"},
		{offrampv1.SectionKind_SECTION_KIND_NFTABLES, absent, "", "  nftables: absent (the kernel has no nf_tables loaded)"},
		{offrampv1.SectionKind_SECTION_KIND_NFTABLES, empty, "", "  nftables: empty (nf_tables is loaded and has no native table)"},
		{offrampv1.SectionKind_SECTION_KIND_ADDRESSES, empty, "", "  addresses: empty (the node has no address)"},
		{offrampv1.SectionKind_SECTION_KIND_KERNEL, unreadable, "", "  kernel: unreadable"},
		{offrampv1.SectionKind(99), absent, "", "  unknown: absent"},
		{offrampv1.SectionKind_SECTION_KIND_IPVS, offrampv1.SectionState(99), "", "  ipvs: unknown"},
		{offrampv1.SectionKind_SECTION_KIND_IPVS, offrampv1.SectionState_SECTION_STATE_PRESENT, "", "  ipvs: present, of a kind that this version does not know"},
	}
	for _, tt := range tests {
		wantLines(t, sectionText(without(tt.kind, tt.state, tt.err)), tt.want)
	}
	wantLines(t, sectionText(nil), "  unknown: unknown")
}

// A node without a kube-proxy still tells how that was concluded.
func TestAbsentKubeProxyTellsWhy(t *testing.T) {
	section := without(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY, offrampv1.SectionState_SECTION_STATE_ABSENT, "")
	section.Stable.Content = &offrampv1.SectionStable_KubeProxy{KubeProxy: &offrampv1.KubeProxyFacts{
		RunningMode: offrampv1.ProxyMode_PROXY_MODE_NONE, RunningModeSource: "asserted: drained", AssertedNoneReason: "drained",
		Endpoints: []*offrampv1.KubeProxyEndpoint{{Url: "http://127.0.0.1:10249/proxyMode"}, {Url: "http://127.0.0.1:10256/healthz", Status: 503, Error: "not in sync"}},
	}}
	wantLines(t, sectionText(section),
		"  kube-proxy: absent (no kube-proxy is in sight)",
		"      running mode: none (asserted: drained)",
		"      configured mode: unknown",
		"      asserted by a person that none runs: drained",
		"      processes: those of the host are not in sight, so that one may be hidden",
		"          (run with the host's PID namespace, or as root)",
		"      http://127.0.0.1:10249/proxyMode: no answer",
		"      http://127.0.0.1:10256/healthz: HTTP 503 (not in sync)")
}

func TestServerNames(t *testing.T) {
	for want, server := range map[string]*offrampv1.VirtualServer{
		"TCP 10.96.0.1:443":   {Protocol: "TCP", Address: "10.96.0.1", Port: 443},
		"UDP [fd00::a]:53":    {Protocol: "UDP", Address: "fd00::a", Port: 53},
		"firewall mark 7":     {Protocol: "FWM", Fwmark: 7},
		"SCTP 192.0.2.1:0":    {Protocol: "SCTP", Address: "192.0.2.1"},
		`TCP a\x1b[31m:1`:     {Protocol: "TCP", Address: "a\x1b[31m", Port: 1},
		`\x0aT [:\x0a:]:1`:    {Protocol: "\nT", Address: ":\n:", Port: 1},
		"FWM2 [fd00::a]:5000": {Protocol: "FWM2", Address: "fd00::a", Port: 5000},
	} {
		if got := serverName(server); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSyncWithoutFamily(t *testing.T) {
	got := syncText(&offrampv1.FamilySync{LastSync: ago(time.Minute), Failures: 1})
	if want := "all families rules: last sync 2026-11-30 11:59:00Z, last change queued never, 1 failure"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestManyAddressesAreCut(t *testing.T) {
	facts := &offrampv1.AddressesFacts{Count: 9}
	for i := range 9 {
		facts.Samples = append(facts.Samples, &offrampv1.NodeAddress{Interface: "eth0", Address: fmt.Sprintf("192.0.2.%d", i), PrefixLength: 24})
	}
	got := sectionText(present(offrampv1.SectionKind_SECTION_KIND_ADDRESSES,
		&offrampv1.SectionStable{Content: &offrampv1.SectionStable_Addresses{Addresses: facts}}))
	if strings.Contains(got, "192.0.2.8") || !strings.Contains(got, "192.0.2.7/24") || !strings.Contains(got, "with -o json") {
		t.Errorf("got:\n%s", got)
	}
}

func TestHistoryInMemory(t *testing.T) {
	got := sectionText(present(offrampv1.SectionKind_SECTION_KIND_HISTORY, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_History{History: &offrampv1.HistoryFacts{Since: ago(0)}}}))
	wantLines(t, got, "  history: present, since 2026-11-30 12:00:00Z, lost when the agent restarts")
}

func TestClock(t *testing.T) {
	for skew, want := range map[time.Duration]string{
		0: "0s", -time.Millisecond: "0s", time.Minute: "+1m", -25 * time.Hour: "-1d",
	} {
		if got := clockCell(&offrampv1.NodeSummary{ClockSkew: durationpb.New(skew)}); got != want {
			t.Errorf("%s is %q, want %q", skew, got, want)
		}
	}
	if got := clockCell(nil); got != "?" {
		t.Errorf("unknown is %q", got)
	}
}

func TestKernelNumbers(t *testing.T) {
	for release, want := range map[string]string{
		"5.14.0-427.13.1.el9_4.x86_64": "5.14.0", "6.12.63": "6.12.63", "6.1.-x": "6.1", "custom": "custom", "": "",
	} {
		if got := kernelNumbers(release); got != want {
			t.Errorf("%q is %q, want %q", release, got, want)
		}
	}
}

func TestSamples(t *testing.T) {
	for want, got := range map[string]string{
		"0 nodes":                            samples(0, nil),
		"1 node: a":                          samples(1, []string{"a"}),
		"3 nodes: a, b, … (1 more)":          samples(3, []string{"a", "b"}),
		"7 nodes: a, b, c, d, e, … (2 more)": samples(7, []string{"a", "b", "c", "d", "e", "f", "g"}),
		"1 node: a, b":                       samples(1, []string{"a", "b"}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	var p page
	long := strings.Repeat("x", 100)
	p.line(2, "%s %s b", strings.Repeat("word ", 14)+"last", long)
	p.field(2, "empty", "")
	p.field(2, "lines", " one\ntwo\n")
	wantLines(t, p.text.String(), "  "+strings.Repeat("word ", 14)+"last", "      "+long, "      b", "  lines: one", "      two")
}
