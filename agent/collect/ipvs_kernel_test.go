package collect

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func enterForIPVS(t *testing.T) bool {
	t.Helper()
	nstest.NeedTool(t, "ip", "ipset", "ipvsadm")
	nstest.NeedKernel(t, "ip_vs", "ip_vs_rr", "ip_vs_lc", "ip_vs_wlc", "dummy", "ip_set")
	return nstest.Enter(t)
}

// restoreLinks makes the links of a capture and gives them its addresses.
func restoreLinks(t *testing.T, name string) {
	t.Helper()
	header := regexp.MustCompile(`^\d+: ([^:@]+)`)
	var link string
	var batch strings.Builder
	for line := range strings.Lines(readCapture(t, name, "ip-addr.txt")) {
		words := strings.Fields(line)
		if match := header.FindStringSubmatch(line); match != nil {
			if link = match[1]; link != "lo" {
				fmt.Fprintf(&batch, "link add %s type dummy\n", link)
			}
			continue
		}
		if link == "lo" || words[0] != "inet" && words[0] != "inet6" || strings.HasPrefix(words[1], "fe80:") {
			continue
		}
		fmt.Fprintf(&batch, "addr add %s dev %s\n", words[1], link)
	}
	run(t, batch.String(), "ip", "-batch", "-")
}

// A capture restored into a real kernel is read back as ipvsadm and ip list it, each virtual server with the owner that
// was written down by hand.
func TestScanOfRestoredCaptures(t *testing.T) {
	for _, name := range captures.Names() {
		t.Run(name, func(t *testing.T) {
			if !enterForIPVS(t) {
				return
			}
			restoreLinks(t, name)
			restoreSets(t, readCapture(t, name, "ipset-save.txt"))
			run(t, readCapture(t, name, "ipvsadm-save.txt"), "ipvsadm", "-R")
			checkIPVSOfCapture(t, name, New(Config{Host: DefaultHost()}).Scan(t.Context()))
		})
	}
}

func checkIPVSOfCapture(t *testing.T, name string, node *offrampv1.NodeFacts) {
	t.Helper()
	saved := run(t, "", "ipvsadm", "-Sn")
	section := facts.Find(node, kindIPVS)
	servers, reals := strings.Count("\n"+saved, "\n-A"), strings.Count("\n"+saved, "\n-a")
	if servers == 0 {
		wantState(t, section, sectionEmpty)
	} else {
		wantState(t, section, sectionPresent)
	}
	content := section.GetStable().GetIpvs()
	if int(content.GetVirtualServers()) != servers || int(content.GetRealServers()) != reals || content.GetAttributionError() != "" {
		t.Errorf("%d virtual and %d real servers (%s), want %d and %d", content.GetVirtualServers(), content.GetRealServers(),
			content.GetAttributionError(), servers, reals)
	}
	want, got := map[string]uint64{}, map[string]uint64{}
	for line := range strings.Lines(readCapture(t, name, "owners.txt")) {
		if words := strings.Split(strings.TrimSpace(line), "\t"); words[0] == "server" {
			want[words[3]]++
		}
	}
	for _, owner := range content.GetOwners() {
		got[owner.GetOwner()] = owner.GetCount()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("owners (-by hand +ours):\n%s", diff)
	}
	if link := facts.Find(node, kindIPVSLink); strings.Contains(readCapture(t, name, "ip-addr.txt"), "kube-ipvs0") {
		wantState(t, link, sectionPresent)
		items := listedAddresses(t, "kube-ipvs0")
		if diff := cmp.Diff(facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, items).GetDigest(),
			link.GetStable().GetIpvsLink().GetList().GetDigest()); diff != "" || link.GetStable().GetIpvsLink().GetOwner() != "kube-proxy/ipvs" {
			t.Errorf("kube-ipvs0: %v", link)
		}
	} else {
		wantState(t, link, sectionAbsent)
	}
}

// What kube-proxy never makes: firewall marks, one-packet scheduling, persistence, other forwarding methods.
func TestIPVSOfEveryKind(t *testing.T) {
	if !enterForIPVS(t) {
		return
	}
	wantState(t, readIPVS(t.Context(), DefaultHost(), noClaims(t), noStatistics), sectionEmpty)
	run(t, `-A -t 10.96.0.1:443 -s rr -p 10800
-a -t 10.96.0.1:443 -r 10.244.0.1:443 -m -w 0
-A -u 10.96.0.10:53 -s lc -o
-a -u 10.96.0.10:53 -r 10.244.0.2:53 -g -w 100
-A -t [fd00:10:96::1]:443 -s wlc -p 300
-a -t [fd00:10:96::1]:443 -r [fd00:10:244::1]:443 -m -w 1
-A -f 7 -s rr
-A -f 7 -6 -s rr
`, "ipvsadm", "-R")
	section := readIPVS(t.Context(), DefaultHost(), func(context.Context) claims { return handClaims() }, readStatistics)
	wantState(t, section, sectionPresent)
	got := section.GetStable().GetIpvs()
	if got.GetVirtualServers() != 5 || got.GetRealServers() != 3 || got.GetRealServersWeightZero() != 1 {
		t.Errorf("%v", got)
	}
	want := facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS,
		[]string{"FWM 7", "FWM 7", "TCP 10.96.0.1:443", "TCP [fd00:10:96::1]:443", "UDP 10.96.0.10:53"})
	if diff := cmp.Diff(want.GetDigest(), got.GetList().GetDigest()); diff != "" {
		t.Errorf("list %v", got.GetSamples())
	}
}

// Another process adds and deletes virtual servers without pause. What is called whole has every one that stayed.
func TestIPVSUnderChurn(t *testing.T) {
	if !enterForIPVS(t) {
		return
	}
	const permanent = 500
	var services strings.Builder
	for i := range permanent {
		fmt.Fprintf(&services, "-A -t 10.96.%d.%d:80 -s rr\n-a -t 10.96.%d.%d:80 -r 10.244.0.1:80 -m -w 1\n", i/250, i%250, i/250, i%250)
	}
	run(t, services.String(), "ipvsadm", "-R")
	var moves strings.Builder
	for i := range 20 {
		fmt.Fprintf(&moves, "-A -t 10.97.0.%d:80 -s rr\n", i)
	}
	for i := range 20 {
		fmt.Fprintf(&moves, "-D -t 10.97.0.%d:80\n", i)
	}
	defer churn(t, moves.String(), "ipvsadm", "-R")()
	states := map[offrampv1.SectionState]int{}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		var table *ipvsTable
		table, _, _, err := readAgreedIPVS(t.Context(), DefaultHost(), func(context.Context) claims { return claims{} })
		if err != nil {
			wantState(t, failed(kindIPVS, err), sectionInconsistent)
			states[sectionInconsistent]++
			continue
		}
		states[sectionPresent]++
		stayed := netip.MustParsePrefix("10.96.0.0/16")
		found := 0
		for _, server := range table.servers {
			if stayed.Contains(server.address.Addr()) {
				found++
			}
		}
		if found != permanent || table.realServers != permanent || len(table.servers) > permanent+20 {
			t.Fatalf("%d virtual servers that stayed, %d real servers, %d in all; want %d, %d", found, table.realServers, len(table.servers), permanent, permanent)
		}
	}
	t.Logf("%v", states)
}
