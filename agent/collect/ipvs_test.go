package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// noClaims is for tables that hold nothing.
func noClaims(t *testing.T) func(context.Context) claims {
	return func(context.Context) claims {
		t.Error("asked for owners where there are no virtual servers")
		return claims{}
	}
}

// noStatistics stands for a kernel that is not to be asked.
func noStatistics(context.Context, func(serverKey, serverStatistics)) error { return nil }

func handClaims() claims {
	ports := newServicePorts()
	ports.services[servicePort{"TCP", netip.MustParseAddrPort("10.96.0.1:443")}] = struct{}{}
	ports.nodes[nodePort{"TCP", 30080, 4}] = struct{}{}
	return claims{ports: ports, local: &localAddresses{
		ipvs: map[netip.Addr]struct{}{netip.MustParseAddr("10.96.0.1"): {}, netip.MustParseAddr("10.96.0.9"): {}},
		node: map[netip.Addr]struct{}{netip.MustParseAddr("192.0.2.7"): {}},
	}}
}

const handTable = ipvsHeader +
	"TCP  C0000207:7580 rr  \n" + // 192.0.2.7:30080, a NodePort
	"TCP  0A600001:01BB lc  \n" + // 10.96.0.1:443, a Service
	"  -> C0000202:403B      Masq    0      3          40        \n" +
	"TCP  0A600009:0050 rr  \n" + // on kube-ipvs0, in no set
	"TCP  0A066EA6:A350 wlc  \n" + // 10.6.110.166:41808, nowhere
	"FWM  00000007 wlc  \n"

func TestReadIPVSAbsentAndEmpty(t *testing.T) {
	// kube-proxy's node without ip_vs: /proc/net is there, ip_vs is not.
	host := hostOf(t, map[string]string{"proc/net/dev": ""})
	section := readIPVS(t.Context(), host, noClaims(t), noStatistics)
	wantState(t, section, sectionAbsent)

	host = hostOf(t, map[string]string{"proc/net/ip_vs": ipvsHeader})
	section = readIPVS(t.Context(), host, noClaims(t), noStatistics)
	wantState(t, section, sectionEmpty)
	if got := section.GetVolatile().GetAttempts(); got != 2 {
		t.Errorf("read %d times, want 2", got)
	}
	empty := facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, nil)
	if diff := cmp.Diff(empty, section.GetStable().GetIpvs().GetList(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestReadIPVSUnreadable(t *testing.T) {
	for name, tree := range map[string]map[string]string{
		"proc is not there": {"sys/x": ""},
		"a folder":          {"proc/net/ip_vs/x": ""},
		"cut short":         {"proc/net/ip_vs": ipvsHeader + "TCP  0A6000"},
	} {
		t.Run(name, func(t *testing.T) {
			section := readIPVS(t.Context(), hostOf(t, tree), noClaims(t), noStatistics)
			wantState(t, section, sectionUnreadable)
		})
	}
}

func TestReadIPVSContent(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": handTable})
	section := readIPVS(t.Context(), host, func(context.Context) claims { return handClaims() }, noStatistics)
	wantState(t, section, sectionPresent)
	got := section.GetStable().GetIpvs()
	want := &offrampv1.IpvsFacts{
		VirtualServers: 5, RealServers: 1, RealServersWeightZero: 1,
		Schedulers: []*offrampv1.SchedulerCount{
			{Scheduler: "lc", VirtualServers: 1},
			{Scheduler: "rr", VirtualServers: 2},
			{Scheduler: "wlc", VirtualServers: 2},
		},
		Owners: []*offrampv1.OwnerCount{
			{Owner: "foreign:fwmark", Count: 1},
			{Owner: "foreign:unidentified", Count: 1},
			{Owner: "kube-proxy/ipvs", Count: 2},
			{Owner: "unknown", Count: 1},
		},
		// The NodePort's address is the node's own and differs on every node.
		List: facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, []string{
			"FWM 7", "TCP 10.6.110.166:41808", "TCP 10.96.0.1:443", "TCP 10.96.0.9:80",
		}),
	}
	ignored := protocmp.IgnoreFields(&offrampv1.IpvsFacts{}, "samples")
	if diff := cmp.Diff(want, got, protocmp.Transform(), ignored); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var samples []string
	for _, s := range got.GetSamples() {
		samples = append(samples, fmt.Sprint(s.GetProtocol(), " ", s.GetAddress(), " ", s.GetPort(), " ", s.GetFwmark(), " ", s.GetRealServers(), " ", s.GetOwner()))
		if s.GetReason() == "" || s.GetScheduler() == "" {
			t.Errorf("sample %v lacks its reason or scheduler", s)
		}
	}
	if diff := cmp.Diff([]string{
		"FWM  0 7 0 foreign:fwmark",
		"TCP 10.6.110.166 41808 0 0 foreign:unidentified",
		"TCP 10.96.0.1 443 0 1 kube-proxy/ipvs",
		"TCP 10.96.0.9 80 0 0 unknown",
		"TCP 192.0.2.7 30080 0 0 kube-proxy/ipvs",
	}, samples); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	volatile := section.GetVolatile().GetIpvs()
	if volatile.GetActiveConnections() != 3 || volatile.GetInactiveConnections() != 40 {
		t.Errorf("connections %v", volatile)
	}
}

func TestReadIPVSWithoutOwners(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": handTable})
	section := readIPVS(t.Context(), host, func(context.Context) claims {
		return claims{err: errors.New("operation not permitted")}
	}, noStatistics)
	wantState(t, section, sectionPresent)
	got := section.GetStable().GetIpvs()
	if got.GetVirtualServers() != 5 || got.GetAttributionError() != "operation not permitted" {
		t.Errorf("%d virtual servers, error %q", got.GetVirtualServers(), got.GetAttributionError())
	}
	if got.GetList() != nil {
		t.Error("a list without knowing the node's addresses")
	}
	for _, owner := range got.GetOwners() {
		if strings.HasPrefix(owner.GetOwner(), "kube-proxy") {
			t.Errorf("%v without anything to conclude it from", owner)
		}
	}
}

func TestReadIPVSThatKeepsChanging(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": handTable})
	round := 0
	section := readIPVS(t.Context(), host, func(context.Context) claims {
		round++
		writeFile(t, filepath.Join(host.Proc, "net/ip_vs"), handTable+fmt.Sprintf("TCP  0A6000%02X:0050 rr  \n", round))
		return handClaims()
	}, noStatistics)
	wantState(t, section, sectionInconsistent)
	if section.GetStable().GetIpvs() != nil {
		t.Error("an inconsistent section has content")
	}
}

func TestReadIPVSTakesOwnersBetweenTheTwoReadings(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": handTable})
	round := 0
	section := readIPVS(t.Context(), host, func(context.Context) claims {
		if round++; round == 1 {
			writeFile(t, filepath.Join(host.Proc, "net/ip_vs"), handTable+"TCP  0A600001:0050 rr  \n")
			return claims{err: errors.New("of the reading before")}
		}
		return handClaims()
	}, noStatistics)
	wantState(t, section, sectionPresent)
	if got := section.GetStable().GetIpvs(); got.GetVirtualServers() != 6 || got.GetAttributionError() != "" || round != 2 {
		t.Errorf("%d virtual servers, error %q, %d rounds", got.GetVirtualServers(), got.GetAttributionError(), round)
	}
}

func TestReadIPVSRefusesARepeatedEntry(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/net/ip_vs": ipvsHeader + strings.Repeat("TCP  0A600001:0050 rr  \n", 2)})
	wantState(t, readIPVS(t.Context(), host, noClaims(t), noStatistics), sectionInconsistent)

	// The file does not tell an IPv4 firewall mark from an IPv6 one.
	host = hostOf(t, map[string]string{"proc/net/ip_vs": ipvsHeader + strings.Repeat("FWM  00000007 rr  \n", 2)})
	section := readIPVS(t.Context(), host, func(context.Context) claims { return handClaims() }, noStatistics)
	wantState(t, section, sectionPresent)
}

func TestIPVSSamplesAreBounded(t *testing.T) {
	text := bigTable(300)
	host := hostOf(t, map[string]string{"proc/net/ip_vs": string(text)})
	section := readIPVS(t.Context(), host, func(context.Context) claims { return handClaims() }, noStatistics)
	samples := section.GetStable().GetIpvs().GetSamples()
	perOwner := map[string]int{}
	for _, sample := range samples {
		perOwner[sample.GetOwner()]++
	}
	// 10.96.0.0 and on: 10.96.0.9 is on kube-ipvs0 and unknown, 10.96.0.1:80 too, all others are nobody's.
	if diff := cmp.Diff(map[string]int{"foreign:unidentified": 20, "unknown": 2}, perOwner); diff != "" {
		t.Error(diff)
	}
	if samples[0].GetAddress() != "10.96.0.0" {
		t.Errorf("the first sample is %v", samples[0])
	}
}

// pagedTable hands out a table as the kernel's seq_file does: one page of whole records a time, its place kept by counting
// records. between runs after each page.
type pagedTable struct {
	records *[]string
	place   int
	between func()
	rest    []byte
}

func (p *pagedTable) Read(buffer []byte) (int, error) {
	var page []byte
	page, p.rest = p.rest, nil
	for len(page) < min(len(buffer), 4096) && p.place < len(*p.records) {
		record := (*p.records)[p.place]
		if len(page)+len(record) > 4096 {
			break
		}
		page = append(page, record...)
		p.place++
	}
	if len(page) == 0 {
		return 0, errEndOfTable
	}
	n := copy(buffer, page)
	p.rest = page[n:]
	p.between()
	return n, nil
}

var errEndOfTable = errors.New("end")

// With one entry removed at the same moment of each reading, two readings that begin alike lose the same other entry; a
// reading with other seams does not.
func TestAShortFirstReadMovesTheSeams(t *testing.T) {
	lost := func(skew int) string {
		records := []string{ipvsHeader}
		for i := range 400 {
			records = append(records, fmt.Sprintf("TCP  0A6000%02X:%04X rr  \n", i%256, i))
		}
		all := slices.Clone(records)
		once := true
		reader := &shortFirstRead{limit: skew, reader: &pagedTable{records: &records, between: func() {
			if once {
				records, once = slices.Delete(records, 1, 2), false
			}
		}}}
		var text strings.Builder
		for buffer := make([]byte, 1<<16); ; {
			n, err := reader.Read(buffer)
			text.Write(buffer[:n])
			if err != nil {
				break
			}
		}
		for _, record := range all[2:] {
			if !strings.Contains(text.String(), record) {
				return record
			}
		}
		return ""
	}
	plain, again, moved := lost(0), lost(0), lost(os.Getpagesize()/2)
	if plain == "" || moved == "" || plain != again {
		t.Fatalf("the model of seq_file is wrong: it loses %q, %q and %q", plain, again, moved)
	}
	if plain == moved {
		t.Errorf("both readings lose %q", plain)
	}
}
