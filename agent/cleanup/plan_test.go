package cleanup_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func targets() []offrampv1.Target { return []offrampv1.Target{nftables, iptables, none, ipvs} }

// addZoo puts other people's things between kube-proxy's, in front of its jumps too.
func addZoo(t *testing.T, reading *cleanup.Reading) {
	t.Helper()
	foreign := map[string][]string{
		"filter": {"DOCKER-USER", "cali-INPUT", "KUBE-ROUTER-INPUT", "KUBE-POD-FW-ABCDEFGHIJKLMNOP", "CILIUM_FORWARD", "ufw-user-input", "f2b-sshd"},
		"nat":    {"CNI-HOSTPORT-DNAT", "CNI-DN-0123456789abcdef01234", "KUBE-HOSTPORTS", "KUBE-HP-ABCDEFGHIJKLMNOP", "MY-KUBE-SERVICES"},
	}
	for table, names := range foreign {
		for _, name := range names {
			addChain(reading, table, inventory.Chain{Name: name, Rules: []inventory.Rule{{Position: 1, Target: "ACCEPT", Text: "-A " + name + " -j ACCEPT"}}})
		}
	}
	for base, to := range map[[2]string]string{
		{"filter", "INPUT"}: "cali-INPUT", {"filter", "FORWARD"}: "DOCKER-USER", {"nat", "PREROUTING"}: "KUBE-HOSTPORTS",
	} {
		chain := chainOf(t, reading, base[0], base[1])
		chain.Rules = append([]inventory.Rule{{To: to, Text: "-A " + base[1] + " -j " + to}}, chain.Rules...)
		for i := range chain.Rules {
			chain.Rules[i].Position = uint32(i + 1)
		}
	}
	reading.Inventory.Sets = append(reading.Inventory.Sets,
		inventory.Set{Set: kubeproxy.Set{Name: "KUBE-SRC-ABCDEFGHIJKLMNOP", Type: "hash:ip", Family: kubeproxy.IPv4}},
		inventory.Set{Set: kubeproxy.Set{Name: "KUBE-CLUSTER-IP-2", Type: "hash:ip,port", Family: kubeproxy.IPv4}},
		inventory.Set{Set: kubeproxy.Set{Name: "cali40s:abc", Type: "hash:net", Family: kubeproxy.IPv4}})
	reading.Inventory.Servers = append(reading.Inventory.Servers,
		inventory.VirtualServer{Protocol: "FWM", FWMark: 7, Owner: "foreign:fwmark"},
		inventory.VirtualServer{Protocol: "TCP", Address: netip.MustParseAddrPort("10.6.115.166:41808"), Owner: "foreign:unidentified"})
	for _, name := range []string{"kube-proxy", "firewalld", "cni_hostport"} {
		reading.Inventory.Tables = append(reading.Inventory.Tables, inventory.Table{Table: kubeproxy.Table{Family: "inet", Name: name}})
	}
	reading.Inventory.Accounting = append(reading.Inventory.Accounting, "my_counter")
}

// Other people's things change no plan: not an operation, and not its digest. Calico alone has a plan say one thing more, of
// the link; it has that word with both here, and TestFelixIsToldOfAlone holds that it is no more.
func TestPlansDoNotSeeOthers(t *testing.T) {
	for _, capture := range captures.Names() {
		for _, target := range targets() {
			alone, among := captured(t, capture, 0), captured(t, capture, 0)
			addZoo(t, among)
			addCalico(t, alone)
			want, got := planOf(t, alone, target), planOf(t, among, target)
			ignore := protocmp.IgnoreFields(&offrampv1.DeleteRule{}, "position")
			if diff := cmp.Diff(want.GetOperations(), got.GetOperations(), protocmp.Transform(), ignore); diff != "" {
				t.Errorf("%s, %v: operations differ (-alone +among others):\n%s", capture, target, diff)
			}
			if !slices.Equal(want.GetDigest(), got.GetDigest()) {
				t.Errorf("%s, %v: digests differ", capture, target)
			}
			if diff := cmp.Diff(guardIDs(want), guardIDs(got)); diff != "" {
				t.Errorf("%s, %v: guards differ (-alone +among others):\n%s", capture, target, diff)
			}
		}
	}
}

// addCalico adds the one chain that tells of Calico.
func addCalico(t *testing.T, reading *cleanup.Reading) {
	t.Helper()
	addChain(reading, "filter", inventory.Chain{Name: "cali-INPUT"})
}

func TestFelixIsToldOfAlone(t *testing.T) {
	alone, beside := captured(t, "ipvs-then-iptables", 0), captured(t, "ipvs-then-iptables", 0)
	addCalico(t, beside)
	want, got := planOf(t, alone, iptables).GetOperations(), planOf(t, beside, iptables).GetOperations()
	told := 0
	for _, operation := range got {
		if operation.GetDeleteLink() != nil && strings.Contains(operation.GetReleases(), "Felix") {
			told++
			operation.Releases, _, _ = strings.Cut(operation.GetReleases(), "; ")
		}
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || told != 1 {
		t.Errorf("told %d times, else (-alone +beside Calico):\n%s", told, diff)
	}
}

// sharedNames are what ipvs and iptables mode both use, from the facts about kube-proxy (section 1.3).
func sharedNames() []string {
	return []string{"KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL"}
}

// Whatever the node: never a built-in chain, never kubelet's, never KUBE-FIREWALL; under iptables and ipvs never a shared chain
// nor a shared jump; under iptables never a canary; and single rules only in built-in chains.
func TestWhatIsNeverInAPlan(t *testing.T) {
	for _, capture := range captures.Names() {
		for _, target := range targets() {
			plan := planOf(t, captured(t, capture, 0), target)
			for _, operation := range plan.GetOperations() {
				checkNever(t, capture, target, operation)
			}
		}
	}
}

func checkNever(t *testing.T, capture string, target offrampv1.Target, operation *offrampv1.Operation) {
	t.Helper()
	live := target == iptables || target == ipvs
	if chain := operation.GetDeleteChain(); chain != nil {
		name := chain.GetChain()
		shared := slices.Contains(sharedNames(), name) && (name != "KUBE-SERVICES" || chain.GetTable() == "nat")
		switch {
		case kubeproxy.BuiltinChain(chain.GetTable(), name), strings.Contains(name, "KUBELET"), strings.Contains(name, "HINT"),
			name == "KUBE-FIREWALL", live && shared, target == iptables && name == "KUBE-PROXY-CANARY":
			t.Errorf("%s, %v: chain %s of %s would go", capture, target, name, chain.GetTable())
		}
	}
	if rule := operation.GetDeleteRule(); rule != nil {
		text := rule.GetRule()
		shared := strings.HasSuffix(text, "-j KUBE-FORWARD") || rule.GetTable() == "nat"
		if !kubeproxy.BuiltinChain(rule.GetTable(), rule.GetChain()) || strings.HasSuffix(text, "-j KUBE-FIREWALL") || live && shared {
			t.Errorf("%s, %v: rule %s of %s would go", capture, target, text, rule.GetTable())
		}
	}
}

// Stages come in their order; transactions rise; and of a family everything but the shield goes at once.
func TestOrderOfAPlan(t *testing.T) {
	plan := planOf(t, switchedTwice(t), nftables)
	perTransaction := map[uint32]map[offrampv1.SectionKind]int{}
	for i, operation := range plan.GetOperations() {
		if i > 0 {
			before := plan.GetOperations()[i-1]
			if operation.GetStage() < before.GetStage() || operation.GetTransaction() < before.GetTransaction() ||
				operation.GetTransaction() > before.GetTransaction()+1 {
				t.Fatalf("operation %d: stage %v, transaction %d after %v, %d", i, operation.GetStage(), operation.GetTransaction(),
					before.GetStage(), before.GetTransaction())
			}
		}
		if operation.GetStage() == offrampv1.Stage_STAGE_RULES {
			section := operation.GetDeleteRule().GetSection() + operation.GetDeleteChain().GetSection()
			if perTransaction[operation.GetTransaction()] == nil {
				perTransaction[operation.GetTransaction()] = map[offrampv1.SectionKind]int{}
			}
			perTransaction[operation.GetTransaction()][section]++
		}
	}
	if plan.GetOperations()[0].GetTransaction() != 1 {
		t.Error("transactions do not begin with 1")
	}
	sizes := map[offrampv1.SectionKind][]int{}
	for _, transaction := range perTransaction {
		for section, size := range transaction {
			sizes[section] = append(sizes[section], size)
		}
		if len(transaction) != 1 {
			t.Errorf("a transaction of %d backends or families", len(transaction))
		}
	}
	// 17 jumps and 190 (186) chains, of which the shield's jump and chain are by themselves.
	for section, want := range map[offrampv1.SectionKind][]int{
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4: {2, 205}, offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6: {2, 201},
	} {
		slices.Sort(sizes[section])
		if !slices.Equal(sizes[section], want) {
			t.Errorf("%v: transactions of %v operations, want %v", section, sizes[section], want)
		}
	}
	checkShield(t, plan)
}

func checkShield(t *testing.T, plan *offrampv1.Plan) {
	t.Helper()
	waiting := 0
	for _, operation := range plan.GetOperations() {
		if cleanup.WaitsForLink(operation) {
			waiting++
		}
	}
	if waiting != 4 {
		t.Errorf("%d operations wait for the link, want the chain and its jump in two families", waiting)
	}
}

// iptables-legacy takes one transaction a table.
func TestLegacyTransactions(t *testing.T) {
	reading := switchedTwice(t)
	reading.Inventory.Rulesets[0].Section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
	var got []string
	last := uint32(0)
	for _, operation := range planOf(t, reading, nftables).GetOperations() {
		chain, rule := operation.GetDeleteChain(), operation.GetDeleteRule()
		if chain.GetSection()+rule.GetSection() != reading.Inventory.Rulesets[0].Section {
			continue
		}
		if operation.GetTransaction() != last {
			got = append(got, chain.GetTable()+rule.GetTable())
		} else if table := got[len(got)-1]; table != chain.GetTable()+rule.GetTable() {
			t.Errorf("transaction %d is of two tables", last)
		}
		last = operation.GetTransaction()
	}
	// The shield of the link comes by itself.
	if want := []string{"mangle", "filter", "nat", "filter"}; !slices.Equal(got, want) {
		t.Errorf("transactions of %q, want %q", got, want)
	}
}

// A jump that stands twice goes twice.
func TestDuplicateJumps(t *testing.T) {
	reading := switchedTwice(t)
	forward := chainOf(t, reading, "filter", "FORWARD")
	twin := forward.Rules[slices.IndexFunc(forward.Rules, func(r inventory.Rule) bool { return r.To == "KUBE-FORWARD" })]
	twin.Position = uint32(len(forward.Rules) + 1)
	forward.Rules = append(forward.Rules, twin)
	var positions []uint32
	for _, operation := range planOf(t, reading, nftables).GetOperations() {
		if rule := operation.GetDeleteRule(); rule.GetRule() == twin.Text && rule.GetSection() == reading.Inventory.Rulesets[0].Section {
			positions = append(positions, rule.GetPosition())
		}
	}
	if len(positions) != 2 || positions[1] != twin.Position {
		t.Errorf("positions %v", positions)
	}
}

// The source is the node's own address: the primary one, and never one of loopback, of a link that is down, or link-local.
func TestSourceOfRoutes(t *testing.T) {
	sources := map[string]int{}
	for _, operation := range planOf(t, switched(t), iptables).GetOperations() {
		if set := operation.GetSetRouteSource(); set != nil {
			sources[set.GetSource()]++
		}
	}
	if diff := cmp.Diff(map[string]int{"10.0.2.15": 36, "fec0::15": 32}, sources); diff != "" {
		t.Errorf("sources differ (-want +got):\n%s", diff)
	}
	reading := switched(t)
	reading.Inventory.Addresses = nil
	if got := countStages(planOf(t, reading, iptables)); got[0] != 0 || got[5] != 0 {
		t.Errorf("without an address of the node: %v", got)
	}
}

// What an interrupted clean-up left is part of the next: routes that have their source already are not set again, and those on
// lo are taken away, with the link or without it.
func TestRoutesOfAnInterruptedCleanup(t *testing.T) {
	reading := switched(t)
	vip := netip.MustParseAddr("fd00:10:96::5cf6")
	link := reading.Inventory.Link
	link.Routes = slices.DeleteFunc(link.Routes, func(r inventory.LocalRoute) bool { return r.Address == vip })
	for i := range link.Routes {
		if link.Routes[i].Address.Is4() {
			link.Routes[i].Source = netip.MustParseAddr("10.0.2.15")
		}
	}
	reading.Inventory.OwnRoutes = []inventory.LocalRoute{{Address: vip, Link: "lo", Metric: 1, Protocol: inventory.RouteProtocol}}
	if got := countStages(planOf(t, reading, iptables)); got[0] != 31 || got[5] != 32 {
		t.Errorf("operations by stage: %v", got)
	}
	reading.Inventory.Link = nil
	if got := countStages(planOf(t, reading, iptables)); got[0] != 0 || got[2] != 0 || got[5] != 1 {
		t.Errorf("operations by stage, without the link: %v", got)
	}
}

func TestLinkThatIsNoDummyIsKept(t *testing.T) {
	reading := switched(t)
	reading.Inventory.Link.Kind = "bridge"
	plan := planOf(t, reading, iptables)
	if got := countStages(plan); got[0] != 0 || got[2] != 0 {
		t.Errorf("operations by stage: %v", got)
	}
	if !slices.ContainsFunc(plan.GetKept(), func(k *offrampv1.Kept) bool { return k.GetWhat() == "link kube-ipvs0" }) {
		t.Errorf("kept: %v", plan.GetKept())
	}
}

func TestKept(t *testing.T) {
	reading := switchedTwice(t)
	addChain(reading, "nat", inventory.Chain{Name: "KUBE-MARK-DROP"})
	addChain(reading, "nat", inventory.Chain{Name: "KUBE-XLB-ABCDEFGHIJKLMNOP"})
	var kept []string
	for _, one := range planOf(t, reading, nftables).GetKept() {
		kept = append(kept, one.GetWhat()+" "+one.GetOwner())
	}
	for _, want := range []string{
		"chain iptables-nft filter KUBE-FIREWALL kubelet", "chain ip6tables-nft filter KUBE-FIREWALL kubelet",
		"rule iptables-nft filter -A INPUT -j KUBE-FIREWALL kubelet", "rule ip6tables-nft filter -A OUTPUT -j KUBE-FIREWALL kubelet",
		"chain iptables-nft nat KUBE-MARK-DROP kubelet", "chain iptables-nft nat KUBE-XLB-ABCDEFGHIJKLMNOP unknown",
		"chain iptables-nft mangle KUBE-IPTABLES-HINT kubelet", "kernel modules and connection tracking kernel",
	} {
		if !slices.Contains(kept, want) {
			t.Errorf("not kept: %s, of %q", want, kept)
		}
	}
}

func TestResetSysctls(t *testing.T) {
	values := map[string][2]string{ // value, and the one of ipvs mode
		"net/ipv4/vs/conntrack": {"1", "1"}, "net/ipv4/vs/expire_nodest_conn": {"0", "1"}, "net/ipv4/ip_forward": {"1", "1"},
		"net/ipv4/conf/all/arp_ignore": {"1", "1"}, "net/ipv4/conf/all/arp_announce": {"2", "2"}, "net/ipv4/conf/all/route_localnet": {"1", ""},
	}
	const vs, ignore, announce = "net/ipv4/vs/conntrack", "net/ipv4/conf/all/arp_ignore", "net/ipv4/conf/all/arp_announce"
	cases := []struct {
		name   string
		host   *offrampv1.HostFacts
		server *inventory.VirtualServer
		want   []string
	}{
		{"nobody else", &offrampv1.HostFacts{}, nil, []string{announce, ignore, vs}},
		{"the host is out of sight", nil, nil, nil},
		{"a sysctl.d file", &offrampv1.HostFacts{Files: []*offrampv1.HostFile{{Kind: "sysctl", Names: []string{"net.ipv4.conf.all.arp_ignore"}}}}, nil, []string{announce, vs}},
		{"keepalived runs", &offrampv1.HostFacts{ProgramsSeen: []string{"keepalived"}}, nil, []string{vs}},
		{"kube-vip runs", &offrampv1.HostFacts{ProgramsSeen: []string{"docker", "kube-vip"}}, nil, []string{vs}},
		{"kube-router runs", &offrampv1.HostFacts{ProgramsSeen: []string{"kube-router"}}, nil, []string{vs}},
		{"MetalLB runs", &offrampv1.HostFacts{ProgramsSeen: []string{"metallb"}}, nil, []string{vs}},
		{"Docker and ufw run", &offrampv1.HostFacts{ProgramsSeen: []string{"docker", "ufw"}}, nil, []string{announce, ignore, vs}},
		{"processes are out of sight", &offrampv1.HostFacts{Unreadable: []string{"processes: not in sight"}}, nil, []string{vs}},
		{"sysctl.d is out of sight", &offrampv1.HostFacts{Unreadable: []string{"/etc/sysctl.d: not in sight"}}, nil, nil},
		{"a sysctl.d file cannot be read", &offrampv1.HostFacts{Files: []*offrampv1.HostFile{{Path: "/etc/sysctl.d/9.conf", Kind: "sysctl", Error: "input/output error"}}}, nil, nil},
		{"modules are out of sight", &offrampv1.HostFacts{Unreadable: []string{"/lib/modules: not in sight"}}, nil, []string{announce, ignore, vs}},
		{"a virtual server stays", &offrampv1.HostFacts{}, &inventory.VirtualServer{Protocol: "FWM", Owner: "foreign:fwmark"}, []string{announce, ignore}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			reading := switched(t)
			if c.host != nil {
				setHost(reading, c.host)
			}
			if c.server != nil {
				reading.Inventory.Servers = append(reading.Inventory.Servers, *c.server)
			}
			sysctls := &offrampv1.SysctlsFacts{}
			for path, value := range values {
				sysctls.Values = append(sysctls.Values, &offrampv1.Sysctl{Path: path, Value: value[0], IpvsModeValue: value[1]})
			}
			facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_SYSCTLS).Stable = &offrampv1.SectionStable{
				State: offrampv1.SectionState_SECTION_STATE_PRESENT, Content: &offrampv1.SectionStable_Sysctls{Sysctls: sysctls}}
			plan, err := cleanup.MakePlan(reading, cleanup.Options{Target: iptables, ResetSysctls: true}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, operation := range plan.GetOperations() {
				if reset := operation.GetResetSysctl(); reset != nil {
					got = append(got, reset.GetPath())
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("sysctls differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	reading := switched(t)
	if _, err := cleanup.MakePlan(reading, cleanup.Options{}, time.Now()); !errors.Is(err, cleanup.ErrTarget) {
		t.Errorf("no target: %v", err)
	}
	if _, err := cleanup.MakePlan(reading, cleanup.Options{Target: ipvs, ResetSysctls: true}, time.Now()); !errors.Is(err, cleanup.ErrSysctlsUnderIPVS) {
		t.Errorf("sysctls under ipvs: %v", err)
	}
}
