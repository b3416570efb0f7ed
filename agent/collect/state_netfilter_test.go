package collect

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The states that people reported, by their number in facts/field-reports.md.

const (
	kindLegacyIPv4 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
	kindLegacyIPv6 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
)

// scanAll reads the whole node of the namespace.
func scanAll(t *testing.T) *offrampv1.NodeFacts {
	t.Helper()
	return New(Config{Host: DefaultHost(), Node: "n"}).Scan(t.Context())
}

// scanRules reads the rules of the namespace, and the sets that they hold.
func scanRules(t *testing.T) *offrampv1.NodeFacts {
	t.Helper()
	mods := newModules(DefaultHost())
	rules := newRuleReader(DefaultHost(), mods)
	sections := append(rules.readNFT(t.Context()),
		rules.readLegacy(t.Context(), kubeproxy.IPv4), rules.readLegacy(t.Context(), kubeproxy.IPv6))
	return &offrampv1.NodeFacts{Sections: append(sections, rules.joinHolders(readIPSets(t.Context(), mods)))}
}

func iptablesOf(t *testing.T, node *offrampv1.NodeFacts, kind offrampv1.SectionKind) *offrampv1.IptablesFacts {
	t.Helper()
	section := facts.Find(node, kind)
	checkState(t, section, isPresent)
	return section.GetStable().GetIptables()
}

func nftablesOf(t *testing.T, node *offrampv1.NodeFacts) *offrampv1.NftablesFacts {
	t.Helper()
	section := facts.Find(node, kindNFT)
	checkState(t, section, isPresent)
	return section.GetStable().GetNftables()
}

func wantProto[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("%s, by hand (-) and as read (+):\n%s", what, diff)
	}
}

// kubelet's chains are nobody's leftovers, in either backend, and its hints in mangle stay what they are.
func TestState16KubeletsChains(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-16")
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables")
	const saved = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
*nat
:KUBE-MARK-DROP - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
COMMIT
`
	want := map[string]ownerCounts{"mangle kubelet": {2, 0, 0}, "filter kubelet": {2, 1, 2}, "nat kubelet": {2, 1, 0}}
	for _, backend := range append(nftBackends(), legacyBackends()...) {
		run(t, saved, backend.restore)
		content := backend.read(t.Context()).GetStable().GetIptables()
		wantProto(t, backend.name, want, ownersRead(content))
		if content.GetForeignReferenceCount()+content.GetForeignMarkCount()+content.GetDuplicateJumps() != 0 {
			t.Errorf("%s: references %v, marks %v", backend.name, content.GetForeignReferences(), content.GetForeignMarks())
		}
	}
}

// kube-router's chains and sets, whose names look like kube-proxy's, are kube-router's; so is what holds them.
func TestState17KubeRouter(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-17")
	nstest.NeedTool(t, "iptables-nft-restore", "ipset")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_set")
	restoreSets(t, "create KUBE-SRC-ABCDEFGHIJKLMNOP hash:ip\ncreate KUBE-CLUSTER-IP hash:ip,port\ncreate unheld hash:ip\n")
	run(t, `*filter
:FORWARD ACCEPT [0:0]
:KUBE-NWPLCY-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-POD-FW-ABCDEFGHIJKLMNOP - [0:0]
-A KUBE-NWPLCY-ABCDEFGHIJKLMNOP -m set --match-set KUBE-SRC-ABCDEFGHIJKLMNOP src -j ACCEPT
-A KUBE-NWPLCY-ABCDEFGHIJKLMNOP -m set ! --match-set KUBE-SRC-ABCDEFGHIJKLMNOP src -j DROP
-A KUBE-POD-FW-ABCDEFGHIJKLMNOP -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
COMMIT
`, "iptables-nft-restore")
	node := scanRules(t)
	holder := func(chain string, rules uint64) *offrampv1.SetHolder {
		return &offrampv1.SetHolder{Section: kindNFTIPv4, Table: "filter", Chain: chain, Rules: rules, Owner: "foreign:kube-router"}
	}
	want := map[string][]*offrampv1.SetHolder{
		"KUBE-SRC-ABCDEFGHIJKLMNOP": {holder("KUBE-NWPLCY-ABCDEFGHIJKLMNOP", 2)},
		"KUBE-CLUSTER-IP":           {holder("KUBE-POD-FW-ABCDEFGHIJKLMNOP", 1)},
		"unheld":                    nil,
	}
	wantProto(t, "holders", want, holdersRead(node))
	content := iptablesOf(t, node, kindNFTIPv4)
	matches := []*offrampv1.ForeignReference{{Table: "filter", FromChain: "KUBE-POD-FW-ABCDEFGHIJKLMNOP", Set: "KUBE-CLUSTER-IP"}}
	wantProto(t, "foreign matches of kube-proxy's sets", matches, content.GetForeignSetMatches())
}

func holdersRead(node *offrampv1.NodeFacts) map[string][]*offrampv1.SetHolder {
	held := map[string][]*offrampv1.SetHolder{}
	for _, set := range facts.Find(node, kindIPSets).GetStable().GetIpsets().GetSamples() {
		held[set.GetName()] = set.GetHolders()
	}
	return held
}

// kube-ipvs0 under a live nftables mode: both are there, each in its section.
func TestState22LinkUnderNFTables(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-22")
	nstest.NeedTool(t, "nft", "ip")
	nstest.NeedKernel(t, "nf_tables", "dummy")
	run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	run(t, "", "ip", "addr", "add", "10.96.0.1/32", "dev", "kube-ipvs0")
	run(t, serviceTables, "nft", "-f", "-")
	node := scanAll(t)
	link := facts.Find(node, kindIPVSLink)
	checkState(t, link, isPresent)
	if got := link.GetStable().GetIpvsLink(); got.GetOwner() != "kube-proxy/ipvs" || got.GetIpv4Addresses() != 1 {
		t.Errorf("the link: %v", got)
	}
	if list := nftablesOf(t, node).GetList(); list.GetCount() != 5 {
		t.Errorf("services %v, want 5", list)
	}
}

// Old legacy rules beside new nft ones: four sets of rules, each counted by itself.
func TestState23BothBackends(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-23")
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables")
	saved := func(services int) string {
		return "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n" +
			"-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n" +
			strings.Repeat("-A KUBE-SERVICES -p tcp -m tcp --dport 80 -j RETURN\n", services) + "COMMIT\n"
	}
	run(t, saved(1), "iptables-nft-restore")
	run(t, saved(2), "ip6tables-nft-restore")
	run(t, saved(3), "iptables-legacy-restore")
	run(t, saved(4), "ip6tables-legacy-restore")
	node := scanRules(t)
	for i, kind := range []offrampv1.SectionKind{kindNFTIPv4, kindNFTIPv6, kindLegacyIPv4, kindLegacyIPv6} {
		want := map[string]ownerCounts{"nat kube-proxy/shared": {1, uint64(i + 1), 1}}
		wantProto(t, kind.String(), want, ownersRead(iptablesOf(t, node, kind)))
	}
}

// Looking with iptables-legacy creates what it looks for; a scan does not.
func TestState24LookingCreatesNoTable(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-24")
	nstest.NeedKernel(t, "ip_tables", "ip6_tables")
	names := func() string {
		var all strings.Builder
		for _, file := range []string{"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"} {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(content)
		}
		return all.String()
	}
	if before := names(); before != "" {
		t.Fatalf("a fresh namespace has the tables %q", before)
	}
	node := scanAll(t)
	checkState(t, facts.Find(node, kindLegacyIPv4), isEmpty)
	checkState(t, facts.Find(node, kindLegacyIPv6), isEmpty)
	if after := names(); after != "" {
		t.Errorf("the scan made the tables %q", after)
	}
}

// The set that a rule of the nft backend matches is in its data as a number; nft's own listing does not name it.
func TestState26SetOfACompatRule(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-26")
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-legacy-restore", "ipset")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip6_tables", "ip_set")
	restoreSets(t, "create other hash:ip\ncreate KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535\ncreate KUBE-6-CLUSTER-IP hash:ip,port family inet6\n")
	run(t, `*filter
:INPUT ACCEPT [0:0]
:KUBE-NODE-PORT - [0:0]
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A INPUT -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -m set ! --match-set other src -j ACCEPT
-A KUBE-NODE-PORT -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT
-A INPUT -j SET --add-set other src
COMMIT
`, "iptables-nft-restore")
	run(t, "*raw\n:PREROUTING ACCEPT [0:0]\n:MINE - [0:0]\n-A MINE -m set --match-set KUBE-6-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n", "ip6tables-legacy-restore")
	node := scanRules(t)
	want := map[string][]*offrampv1.SetHolder{
		"KUBE-HEALTH-CHECK-NODE-PORT": {
			{Section: kindNFTIPv4, Table: "filter", Chain: "INPUT", Rules: 1, Owner: "foreign:unidentified"},
			{Section: kindNFTIPv4, Table: "filter", Chain: "KUBE-NODE-PORT", Rules: 1, Owner: "kube-proxy/ipvs"},
		},
		"other":             {{Section: kindNFTIPv4, Table: "filter", Chain: "INPUT", Rules: 2, Owner: "foreign:unidentified"}},
		"KUBE-6-CLUSTER-IP": {{Section: kindLegacyIPv6, Table: "raw", Chain: "MINE", Rules: 1, Owner: "foreign:unidentified"}},
	}
	wantProto(t, "holders", want, holdersRead(node))
	wantProto(t, "foreign matches",
		[]*offrampv1.ForeignReference{{Table: "filter", FromChain: "INPUT", Set: "KUBE-HEALTH-CHECK-NODE-PORT"}},
		iptablesOf(t, node, kindNFTIPv4).GetForeignSetMatches())
	wantProto(t, "foreign matches, legacy",
		[]*offrampv1.ForeignReference{{Table: "raw", FromChain: "MINE", Set: "KUBE-6-CLUSTER-IP"}},
		iptablesOf(t, node, kindLegacyIPv6).GetForeignSetMatches())
}

// A set that a newer nft made, of which kube-proxy's nft may crash, is pointed out; one of nft's here is not.
func TestState35SetOfANewerNFT(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-35")
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, `table inet plain {
	set a { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80 } }
	set b { typeof ip saddr . tcp dport; flags timeout, dynamic; }
	map c { type ifname : verdict; }
}
table inet newer { }
`, "nft", "-f", "-")
	// As nft 1.1.2 and later note the type of a plain set: by the expression EXPR_VALUE.
	addSet(t, "newer", "test_set", []byte("\x03\x06\x00\x04\x04\x00\x00\x00"))
	got := map[string][]string{}
	for _, table := range nftablesOf(t, scanRules(t)).GetSamples() {
		got[table.GetName()] = table.GetNewerFeatures()
	}
	wantProto(t, "newer features", map[string][]string{
		"plain": nil, "newer": {"set test_set: type noted as expression 4"},
	}, got)
}

const serviceTables = `
table ip kube-proxy {
	chain drop-chain { drop; }
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 443 : goto drop-chain, 10.96.0.10 . udp . 53 : goto drop-chain, 10.96.0.11 . sctp . 7 : goto drop-chain }
	}
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.12 . tcp . 80 : goto drop-chain }
	}
	map firewall-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 203.0.113.1 . tcp . 80 : goto drop-chain }
	}
}
table ip6 kube-proxy {
	map service-ips {
		type ipv6_addr . inet_proto . inet_service : verdict
		elements = { fd00::a . tcp . 443 : drop }
	}
}
table inet kube-proxy {
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 192.0.2.1 . tcp . 80 : drop }
	}
}
`

// Very many elements: they are read once, their digest is right, and as long as nobody commits they are not read again.
func TestState40ManyElements(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-40")
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	const services = 100_000
	want := make([]string, 0, services)
	var elements strings.Builder
	for i := range services {
		address := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)
		want = append(want, "TCP "+address+":80")
		fmt.Fprintf(&elements, "%s . tcp . 80 : goto c,\n", address)
	}
	slices.Sort(want)
	run(t, "table ip kube-proxy {\nchain c { drop; }\nmap service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }\n}\n", "nft", "-f", "-")
	run(t, "add element ip kube-proxy service-ips { "+elements.String()+"}\n", "nft", "-f", "-")
	scanner := New(Config{Host: DefaultHost(), Node: "n", SectionTimeout: time.Minute})
	read := func() (*offrampv1.NftablesFacts, time.Duration) {
		before := processorTime(t)
		sections := scanner.rules.readNFT(t.Context())
		checkState(t, sections[2], isPresent)
		return sections[2].GetStable().GetNftables(), processorTime(t) - before
	}
	content, first := read()
	wantProto(t, "list", facts.ListDigest(offrampv1.ListName_LIST_NAME_NFTABLES_SERVICES, want), content.GetList())
	again, second := read()
	wantProto(t, "the second time", content, again)
	t.Logf("first %v, again %v of processor time", first, second)
	if second > first/20 {
		t.Errorf("a reading where nothing moved took %v, the first one %v", second, first)
	}
	items, err := scanner.List(t.Context(), content.GetList())
	if err != nil || !slices.Equal(items, want) {
		t.Errorf("%d items, %v", len(items), err)
	}
	run(t, "add element ip kube-proxy service-ips { 10.1.1.1 . tcp . 80 : drop }", "nft", "-f", "-")
	if changed, _ := read(); changed.GetList().GetCount() != services+1 {
		t.Errorf("after a change: %v", changed.GetList())
	}
	if _, err := scanner.List(t.Context(), content.GetList()); err == nil {
		t.Error("the list is still called the same")
	}
}

// processorTime is what this process has used so far, in user and kernel.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// The list covers both families and Services without endpoints, from kube-proxy's own tables alone.
func TestServiceListOfBothFamilies(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, serviceTables, "nft", "-f", "-")
	content := nftablesOf(t, scanRules(t))
	want := []string{"SCTP 10.96.0.11:7", "TCP 10.96.0.12:80", "TCP 10.96.0.1:443", "TCP [fd00::a]:443", "UDP 10.96.0.10:53"}
	wantProto(t, "list", facts.ListDigest(offrampv1.ListName_LIST_NAME_NFTABLES_SERVICES, want), content.GetList())
	run(t, "delete table ip kube-proxy\ndelete table ip6 kube-proxy\n", "nft", "-f", "-")
	if list := nftablesOf(t, scanRules(t)).GetList(); list != nil {
		t.Errorf("list %v without a table of kube-proxy's", list)
	}
}

// A firewall that drops is named, whoever made it and in whichever backend; one that sleeps is not.
func TestState42DroppingBaseChains(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-42")
	nstest.NeedTool(t, "nft", "iptables-nft-restore", "iptables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables")
	run(t, "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT DROP [0:0]\n-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT\n", "iptables-nft-restore")
	run(t, "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT\n", "iptables-legacy-restore")
	run(t, `table inet firewall {
	chain input_drop { type filter hook input priority 10; policy drop; }
	chain forward { type filter hook forward priority filter; policy accept; }
	chain output { type filter hook output priority filter; policy drop; }
	chain regular { drop; }
}
table ip sleeping { flags dormant; chain forward { type filter hook forward priority -300; policy drop; }; }
`, "nft", "-f", "-")
	node := scanRules(t)
	native := nftablesOf(t, node)
	wantProto(t, "drop chains", []string{"inet firewall input_drop", "ip filter FORWARD"}, native.GetDropChains())
	wantProto(t, "policies, nft", []string{"filter FORWARD", "filter OUTPUT"}, iptablesOf(t, node, kindNFTIPv4).GetDropPolicies())
	wantProto(t, "policies, legacy", []string{"filter INPUT"}, iptablesOf(t, node, kindLegacyIPv4).GetDropPolicies())
	wantProto(t, "base chains", []*offrampv1.NftBaseChain{
		{Name: "forward", Hook: "forward", Priority: 0, Policy: "accept", Type: "filter"},
		{Name: "input_drop", Hook: "input", Priority: 10, Policy: "drop", Type: "filter"},
		{Name: "output", Hook: "output", Priority: 0, Policy: "drop", Type: "filter"},
	}, native.GetSamples()[0].GetBaseChains())
}

// NodeLocal DNSCache's raw rules are somebody else's: counted, and nobody's leftovers.
func TestState44RawRulesOfNodeLocalDNS(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-44")
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables")
	const saved = `*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -d 169.254.20.10/32 -p udp -m udp --dport 53 -m comment --comment "NodeLocal DNS Cache: skip conntrack" -j NOTRACK
-A OUTPUT -s 169.254.20.10/32 -p udp -m udp --sport 53 -m comment --comment "NodeLocal DNS Cache: skip conntrack" -j NOTRACK
COMMIT
`
	want := &offrampv1.IptablesFacts{
		Tables: []*offrampv1.IptablesTable{{Name: "raw", Chains: 2, Rules: 2}}, SharedChainsMode: sharedNone,
	}
	for _, backend := range []backend{nftBackends()[0], legacyBackends()[0]} {
		run(t, saved, backend.restore)
		wantProto(t, backend.name, want, backend.read(t.Context()).GetStable().GetIptables())
	}
}

// CNI portmap jumps into kube-proxy's chain, and other people use its mark: by x_tables and in nft's own words.
func TestState46PortmapUsesKubeProxysChain(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Log("STATE-46")
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore", "nft")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables")
	const saved = `*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:MINE - [0:0]
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A CNI-DN-0123456789abcdef01234 -s 10.244.0.0/16 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x4000/0x4000
-A MINE -j MARK --set-mark 0x1
-A MINE -m mark --mark 0x2 -j MARK --and-mark 0xffffbfff
-A MINE -m mark --mark 0x10/0xff0 -j RETURN
COMMIT
`
	marks := func(chains ...string) []*offrampv1.ForeignReference {
		var list []*offrampv1.ForeignReference
		for _, chain := range chains {
			list = append(list, &offrampv1.ForeignReference{Table: "nat", FromChain: chain})
		}
		return list
	}
	for _, backend := range []backend{nftBackends()[0], legacyBackends()[0]} {
		run(t, saved, backend.restore)
		content := backend.read(t.Context()).GetStable().GetIptables()
		wantProto(t, backend.name+" references", []*offrampv1.ForeignReference{
			{Table: "nat", FromChain: "CNI-DN-0123456789abcdef01234", ToChain: "KUBE-MARK-MASQ"},
		}, content.GetForeignReferences())
		wantProto(t, backend.name+" marks", marks("CNI-HOSTPORT-SETMARK", "MINE", "POSTROUTING"), content.GetForeignMarks())
		if content.GetDuplicateJumps() != 1 {
			t.Errorf("%s: %d duplicate jumps, want 1", backend.name, content.GetDuplicateJumps())
		}
	}
	run(t, `flush ruleset
table ip nat {
	chain KUBE-MARK-MASQ { meta mark set meta mark or 0x4000; }
	chain KUBE-SERVICES { }
	chain set-all { meta mark set 0x4000; }
	chain set-bit { meta mark set meta mark or 0x4000; }
	chain clear-bit { meta mark set meta mark and 0xffffbfff; }
	chain compare { meta mark and 0x4000 == 0x4000 accept; }
	chain unequal { meta mark & 0x4000 != 0 accept; }
	chain elsewhere { meta mark 0x1 meta mark set meta mark or 0x2 ct mark 0x4000 meta iif 0x4000 accept; }
	map unused { type ipv4_addr : verdict; elements = { 10.0.0.1 : jump KUBE-SERVICES } }
	chain by-map { ip protocol vmap { tcp : jump KUBE-MARK-MASQ, udp : goto set-all }; }
}
`, "nft", "-f", "-")
	content := readNFTv4(t.Context()).GetStable().GetIptables()
	wantProto(t, "marks in the words of nft", marks("clear-bit", "compare", "set-all", "set-bit", "unequal"), content.GetForeignMarks())
	wantProto(t, "references from maps", []*offrampv1.ForeignReference{
		{Table: "nat", FromChain: "@unused", ToChain: "KUBE-SERVICES"}, {Table: "nat", FromChain: "by-map", ToChain: "KUBE-MARK-MASQ"},
	}, content.GetForeignReferences())
}

// Another bit may mean "masquerade".
func TestMasqueradeBitIsConfigured(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables")
	const saved = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j MARK --or-mark 0x4000\n-A B -j MARK --or-mark 0x8\nCOMMIT\n"
	run(t, saved, "iptables-nft-restore")
	run(t, saved, "iptables-legacy-restore")
	rules := newRuleReader(DefaultHost(), newModules(DefaultHost()))
	check := func(chain string, settings *offrampv1.KubeProxySettings) {
		t.Helper()
		rules.setMasquerade(settings)
		want := []*offrampv1.ForeignReference{{Table: "nat", FromChain: chain}}
		wantProto(t, "nft", want, rules.readNFT(t.Context())[0].GetStable().GetIptables().GetForeignMarks())
		wantProto(t, "legacy", want, rules.readLegacy(t.Context(), kubeproxy.IPv4).GetStable().GetIptables().GetForeignMarks())
	}
	check("A", nil)
	check("B", &offrampv1.KubeProxySettings{IptablesMasqueradeBit: 3, NftablesMasqueradeBit: -1})
	check("A", &offrampv1.KubeProxySettings{IptablesMasqueradeBit: -1, NftablesMasqueradeBit: -1})
}

// A table that belongs to a process goes with it, which no generation tells: it is read every time.
func TestOwnedTableIsNotRemembered(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	rules := newRuleReader(DefaultHost(), newModules(DefaultHost()))
	owner := ownTable(t, "mine")
	content := rules.readNFT(t.Context())[2].GetStable().GetNftables()
	if len(content.GetSamples()) != 1 || !content.GetSamples()[0].GetOwnedByProcess() {
		t.Fatalf("tables %v, want one that is owned", content.GetSamples())
	}
	if err := owner.close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		return rules.readNFT(t.Context())[2].GetStable().GetState() == isEmpty
	})
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	end := time.Now().Add(5 * time.Second)
	for !done() {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
