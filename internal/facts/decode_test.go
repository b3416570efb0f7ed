package facts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const present = v1.SectionState_SECTION_STATE_PRESENT

func ipsets(content *v1.IpsetsFacts) *v1.SectionStable {
	return &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipsets{Ipsets: content}}
}

func ipvs(content *v1.IpvsFacts) *v1.SectionStable {
	return &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipvs{Ipvs: content}}
}

func kubeProxy(content *v1.KubeProxyFacts) *v1.SectionStable {
	return &v1.SectionStable{State: present, Content: &v1.SectionStable_KubeProxy{KubeProxy: content}}
}

func iptables(content *v1.IptablesFacts) *v1.SectionStable {
	return &v1.SectionStable{State: present, Content: &v1.SectionStable_Iptables{Iptables: content}}
}

func nftables(content *v1.NftablesFacts) *v1.SectionStable {
	return &v1.SectionStable{State: present, Content: &v1.SectionStable_Nftables{Nftables: content}}
}

// sets makes n samples of one owner.
func sets(owner string, n int) []*v1.Ipset {
	var made []*v1.Ipset
	for i := range n {
		made = append(made, &v1.Ipset{Name: fmt.Sprint("set-", i), Owner: owner})
	}
	return made
}

func servers(owner string, n int) []*v1.VirtualServer {
	var made []*v1.VirtualServer
	for range n {
		made = append(made, &v1.VirtualServer{Owner: owner})
	}
	return made
}

func list(name v1.ListName, count uint64, bytes int) *v1.ListDigest {
	return &v1.ListDigest{Name: name, Count: count, Digest: make([]byte, bytes)}
}

// each case is one sentence about what may arrive; refused is a part of the error, empty when it is fine.
var received = map[string]struct {
	kind    v1.SectionKind
	stable  *v1.SectionStable
	refused string
}{
	"nothing there":                  {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_ABSENT}, ""},
	"unreadable, says why":           {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_UNREADABLE, Error: "permission denied"}, ""},
	"absent, yet with content":       {v1.SectionKind_SECTION_KIND_KUBE_PROXY, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_ABSENT, Content: kubeProxy(&v1.KubeProxyFacts{HostProcessesVisible: true}).Content}, ""},
	"no state":                       {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionStable{}, "no state"},
	"present without content":        {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionStable{State: present}, "content is missing"},
	"another section's content":      {v1.SectionKind_SECTION_KIND_IPVS, ipsets(&v1.IpsetsFacts{}), "another section's"},
	"iptables in legacy IPv6":        {v1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, iptables(&v1.IptablesFacts{}), ""},
	"iptables in nftables":           {v1.SectionKind_SECTION_KIND_NFTABLES, iptables(&v1.IptablesFacts{}), "another section's"},
	"no kind":                        {0, ipsets(&v1.IpsetsFacts{}), "not known"},
	"a kind of the future":           {99, ipsets(&v1.IpsetsFacts{}), "not known"},
	"error of 1,024 bytes":           {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_UNREADABLE, Error: strings.Repeat("x", 1024)}, ""},
	"error of 1,025 bytes":           {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_UNREADABLE, Error: strings.Repeat("x", 1025)}, "1025 bytes"},
	"10 million sets":                {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 10_000_000}), "10000000 sets"},
	"65,535 sets":                    {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 65535}), ""},
	"65,536 sets":                    {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 65536}), "65536 sets"},
	"more owned sets than sets":      {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 3, Owners: []*v1.OwnerCount{{Owner: "kubelet", Count: 2}, {Owner: "unknown", Count: 2}}}), "sum up to more than 3"},
	"sum that wraps around":          {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 3, Owners: []*v1.OwnerCount{{Count: 1}, {Count: 1<<64 - 1}}}), "of 3 in all"},
	"34 sets of kube-proxy's":        {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 34, Samples: sets("kube-proxy/ipvs", 34)}), ""},
	"35 sets of kube-proxy's":        {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 35, Samples: sets("kube-proxy/ipvs", 35)}), "35 sets of kube-proxy's"},
	"20 sets of each of two":         {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 40, Samples: append(sets("unknown", 20), sets("foreign:x", 20)...)}), ""},
	"21 sets of one":                 {v1.SectionKind_SECTION_KIND_IPSETS, ipsets(&v1.IpsetsFacts{Sets: 21, Samples: sets("unknown", 21)}), "21 sets of one owner"},
	"21 virtual servers of one":      {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 21, Samples: servers("unknown", 21)}), "21 virtual servers of one owner"},
	"2^24 virtual servers":           {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1 << 24}), ""},
	"more than 2^24 virtual servers": {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1<<24 + 1}), "virtual servers"},
	"too much of a scheduler":        {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1, Schedulers: []*v1.SchedulerCount{{Scheduler: "rr", VirtualServers: 2}}}), "of a scheduler"},
	"list digest of 31 bytes":        {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1, List: list(1, 1, 31)}), "31 bytes"},
	"list longer than the table":     {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1, List: list(1, 2, 32)}), "items in a list"},
	"another section's list":         {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1, List: list(2, 1, 32)}), "not of this section"},
	"good list":                      {v1.SectionKind_SECTION_KIND_IPVS, ipvs(&v1.IpvsFacts{VirtualServers: 1, List: list(1, 1, 32)}), ""},
	"21 processes":                   {v1.SectionKind_SECTION_KIND_KUBE_PROXY, kubeProxy(&v1.KubeProxyFacts{Processes: make21()}), "21 processes"},
	"33 arguments":                   {v1.SectionKind_SECTION_KIND_KUBE_PROXY, kubeProxy(&v1.KubeProxyFacts{Processes: []*v1.KubeProxyProcess{{Args: make([]string, 33)}}}), "33 arguments"},
	"argument of 257 bytes":          {v1.SectionKind_SECTION_KIND_KUBE_PROXY, kubeProxy(&v1.KubeProxyFacts{Processes: []*v1.KubeProxyProcess{{Args: []string{strings.Repeat("a", 257)}}}}), "257 bytes"},
	"any text of 1,025 bytes":        {v1.SectionKind_SECTION_KIND_KUBE_PROXY, kubeProxy(&v1.KubeProxyFacts{Version: strings.Repeat("v", 1025)}), "version has 1025 bytes"},
	"21 chain samples":               {v1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, iptables(&v1.IptablesFacts{Owners: []*v1.ChainCount{{Samples: make([]string, 21)}}}), "21 chains"},
	"2^40 rules":                     {v1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, iptables(&v1.IptablesFacts{Tables: []*v1.IptablesTable{{Name: "nat", Rules: 1 << 40}}}), "rules"},
	"21 foreign references":          {v1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, iptables(&v1.IptablesFacts{ForeignReferences: makeReferences(21)}), "21 foreign references"},
	"2^20 nftables tables":           {v1.SectionKind_SECTION_KIND_NFTABLES, nftables(&v1.NftablesFacts{Tables: 1 << 20}), "tables"},
	"65 addresses":                   {v1.SectionKind_SECTION_KIND_ADDRESSES, &v1.SectionStable{State: present, Content: &v1.SectionStable_Addresses{Addresses: &v1.AddressesFacts{Count: 65, Samples: makeAddresses(65)}}}, "65 addresses"},
	"a day of the year 20000": {v1.SectionKind_SECTION_KIND_HISTORY, &v1.SectionStable{State: present, Content: &v1.SectionStable_History{History: &v1.HistoryFacts{
		Since: &timestamppb.Timestamp{Seconds: 1 << 40}}}}, "after 9999"},
}

func make21() []*v1.KubeProxyProcess {
	return repeat(&v1.KubeProxyProcess{Name: "kube-proxy"}, 21)
}

func makeReferences(n int) []*v1.ForeignReference {
	return repeat(&v1.ForeignReference{Table: "nat"}, n)
}

func makeAddresses(n int) []*v1.NodeAddress { return repeat(&v1.NodeAddress{Address: "::1"}, n) }

func repeat[T any](item T, n int) []T {
	items := make([]T, n)
	for i := range items {
		items[i] = item
	}
	return items
}

func TestDecode(t *testing.T) {
	for name, tt := range received {
		t.Run(name, func(t *testing.T) {
			encoded, _, err := facts.Encode(tt.stable)
			if err != nil {
				t.Fatal(err)
			}
			got, err := facts.Decode(tt.kind, encoded)
			switch {
			case tt.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("error %v, want one with %q", err, tt.refused)
			case tt.refused == "" && !proto.Equal(got, tt.stable):
				t.Errorf("got %v, want %v", got, tt.stable)
			}
		})
	}
}

func TestDecodeRefusesGarbage(t *testing.T) {
	if _, err := facts.Decode(v1.SectionKind_SECTION_KIND_IPVS, []byte{0xff, 0xff, 0xff}); err == nil {
		t.Error("garbage was decoded")
	}
	if _, err := facts.Decode(v1.SectionKind_SECTION_KIND_IPVS, make([]byte, facts.MaxSectionBytes+1)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("an over-long section: %v", err)
	}
}

// A newer agent may use values that this version has no name for.
func TestNewerValuesReadAsUnknown(t *testing.T) {
	state, _, _ := facts.Encode(&v1.SectionStable{State: 77, Error: "of the future"})
	got, err := facts.Decode(v1.SectionKind_SECTION_KIND_IPVS, state)
	if err != nil || got.GetState() != v1.SectionState_SECTION_STATE_UNREADABLE || !strings.Contains(got.GetError(), "77") {
		t.Errorf("state: %v, %v", got, err)
	}
	modes, _, _ := facts.Encode(kubeProxy(&v1.KubeProxyFacts{RunningMode: 50, ConfiguredModeOrigin: 50, Families: []v1.AddressFamily{1, 50}}))
	got, err = facts.Decode(v1.SectionKind_SECTION_KIND_KUBE_PROXY, modes)
	if err != nil {
		t.Fatal(err)
	}
	proxy := got.GetKubeProxy()
	if proxy.GetRunningMode() != v1.ProxyMode_PROXY_MODE_UNKNOWN || proxy.GetConfiguredModeOrigin() != v1.ModeOrigin_MODE_ORIGIN_UNKNOWN {
		t.Errorf("got %v", proxy)
	}
	if proxy.GetFamilies()[0] != v1.AddressFamily_ADDRESS_FAMILY_IPV4 || proxy.GetFamilies()[1] != v1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED {
		t.Errorf("families %v", proxy.GetFamilies())
	}
	named, _, _ := facts.Encode(ipvs(&v1.IpvsFacts{VirtualServers: 1, List: list(9, 1, 32)}))
	if _, err := facts.Decode(v1.SectionKind_SECTION_KIND_IPVS, named); err != nil {
		t.Errorf("a list of the future: %v", err)
	}
}

func TestCheckVolatile(t *testing.T) {
	syncs := func(n int) *v1.SectionVolatile {
		return &v1.SectionVolatile{Content: &v1.SectionVolatile_KubeProxy{KubeProxy: &v1.KubeProxyVolatile{Syncs: repeat(&v1.FamilySync{Failures: 1}, n)}}}
	}
	sockets := func(count uint64, samples int) *v1.SectionVolatile {
		return &v1.SectionVolatile{Content: &v1.SectionVolatile_IpvsLink{IpvsLink: &v1.IpvsLinkVolatile{
			Sockets: count, SocketSamples: repeat(&v1.HostSocket{Protocol: "tcp"}, samples),
		}}}
	}
	tests := map[string]struct {
		kind     v1.SectionKind
		volatile *v1.SectionVolatile
		fine     bool
	}{
		"none":             {v1.SectionKind_SECTION_KIND_IPVS, nil, true},
		"times only":       {v1.SectionKind_SECTION_KIND_IPSETS, &v1.SectionVolatile{ReadAt: timestamppb.New(time.Unix(1, 0)), Attempts: 1}, true},
		"two families":     {v1.SectionKind_SECTION_KIND_KUBE_PROXY, syncs(2), true},
		"nine families":    {v1.SectionKind_SECTION_KIND_KUBE_PROXY, syncs(9), false},
		"some sockets":     {v1.SectionKind_SECTION_KIND_IPVS_LINK, sockets(1<<26, 20), true},
		"too many sockets": {v1.SectionKind_SECTION_KIND_IPVS_LINK, sockets(1<<26+1, 1), false},
		"too many samples": {v1.SectionKind_SECTION_KIND_IPVS_LINK, sockets(21, 21), false},
		"another's":        {v1.SectionKind_SECTION_KIND_IPVS, syncs(1), false},
		"impossible nanos": {v1.SectionKind_SECTION_KIND_IPVS, &v1.SectionVolatile{ReadAt: &timestamppb.Timestamp{Nanos: -5}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := facts.CheckVolatile(tt.kind, tt.volatile); (err == nil) != tt.fine {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	kinds := facts.Kinds()
	if len(kinds) != 14 || kinds[0] != v1.SectionKind_SECTION_KIND_KERNEL || kinds[13] != v1.SectionKind_SECTION_KIND_HOST {
		t.Errorf("kinds %v", kinds)
	}
	if facts.Known(0) || facts.Known(15) || facts.Known(-1) || !facts.Known(14) {
		t.Error("Known does not agree with Kinds")
	}
}

// What was decoded once is within bounds, so it passes again.
func FuzzDecode(f *testing.F) {
	for _, tt := range received {
		encoded, _, _ := facts.Encode(tt.stable)
		f.Add(int32(tt.kind), encoded)
	}
	f.Fuzz(func(t *testing.T, kind int32, encoded []byte) {
		stable, err := facts.Decode(v1.SectionKind(kind), encoded)
		if err != nil {
			return
		}
		if err := facts.Check(v1.SectionKind(kind), stable); err != nil {
			t.Errorf("decoded, then refused: %v", err)
		}
	})
}
