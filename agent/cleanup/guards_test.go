package cleanup_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// switched is a node that went from ipvs to iptables mode, in sync: nothing stands in the way.
func switched(t *testing.T) *cleanup.Reading {
	t.Helper()
	return captured(t, "ipvs-then-iptables", 0)
}

// switchedTwice went on to nftables mode, with everything of both older modes left: nothing stands in the way.
func switchedTwice(t *testing.T) *cleanup.Reading {
	t.Helper()
	reading := switched(t)
	proxyOf(reading).RunningMode = offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	reading.Inventory.Tables = []inventory.Table{{Table: kubeproxy.Table{Family: "ip", Name: "kube-proxy"}}}
	section := facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_NFTABLES)
	section.Stable = &offrampv1.SectionStable{
		State: offrampv1.SectionState_SECTION_STATE_PRESENT,
		Content: &offrampv1.SectionStable_Nftables{Nftables: &offrampv1.NftablesFacts{
			Owners: []*offrampv1.OwnerCount{{Owner: "kube-proxy/nftables", Count: 1}}}},
	}
	return reading
}

func proxyOf(reading *cleanup.Reading) *offrampv1.KubeProxyFacts {
	return facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetStable().GetKubeProxy()
}

// chainOf finds a chain of iptables-nft, IPv4.
func chainOf(t *testing.T, reading *cleanup.Reading, table, name string) *inventory.Chain {
	t.Helper()
	for i := range reading.Inventory.Rulesets[0].Tables {
		chains := reading.Inventory.Rulesets[0].Tables[i].Chains
		at := slices.IndexFunc(chains, func(c inventory.Chain) bool { return c.Name == name })
		if reading.Inventory.Rulesets[0].Tables[i].Name == table && at >= 0 {
			return &chains[at]
		}
	}
	t.Fatalf("no chain %s in %s", name, table)
	return nil
}

func addRule(t *testing.T, reading *cleanup.Reading, table, chain string, rule inventory.Rule) {
	t.Helper()
	c := chainOf(t, reading, table, chain)
	rule.Position = uint32(len(c.Rules) + 1)
	c.Rules = append(c.Rules, rule)
}

func addChain(reading *cleanup.Reading, table string, chain inventory.Chain) {
	for i := range reading.Inventory.Rulesets[0].Tables {
		if found := &reading.Inventory.Rulesets[0].Tables[i]; found.Name == table {
			found.Chains = append(found.Chains, chain)
		}
	}
}

// setHost gives the node a section about its host.
func setHost(reading *cleanup.Reading, host *offrampv1.HostFacts) {
	facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_HOST).Stable = &offrampv1.SectionStable{
		State: offrampv1.SectionState_SECTION_STATE_PRESENT, Content: &offrampv1.SectionStable_Host{Host: host},
	}
}

// Each case is one thing that is wrong with a node that would otherwise be cleaned, and the one guard that has to see it.
func TestGuards(t *testing.T) {
	type change func(*testing.T, *cleanup.Reading)
	cases := []struct {
		name   string
		twice  bool // from switchedTwice, for nftables; else from switched, for iptables
		change change
		want   []string
	}{
		{"as it is", false, func(*testing.T, *cleanup.Reading) {}, nil},
		{"as it is, nftables", true, func(*testing.T, *cleanup.Reading) {}, nil},
		{"mode is not told", false, func(_ *testing.T, r *cleanup.Reading) {
			proxyOf(r).RunningMode = offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
		},
			[]string{"mode-unknown"}},
		{"another mode", false, func(_ *testing.T, r *cleanup.Reading) { proxyOf(r).RunningMode = nobody }, []string{"mode-is-not-target"}},
		{"not in sync", false, func(_ *testing.T, r *cleanup.Reading) {
			now := facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetVolatile().GetKubeProxy()
			now.GetSyncs()[0].LastQueued = timestamppb.New(time.Now().Add(time.Hour))
		}, []string{"not-in-sync"}},
		{"health is not 200", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetVolatile().GetKubeProxy().HealthStatus = 503
		}, []string{"not-in-sync"}},
		{"metrics do not answer", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetVolatile().GetKubeProxy().Syncs = nil
		}, []string{"sync-unknown"}},
		{"no table of nftables mode", true, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_NFTABLES).Stable =
				&offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_ABSENT}
		}, []string{"target-never-synced"}},
		{"a shared chain matches a set", false, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "nat", "KUBE-SERVICES", inventory.Rule{Sets: []string{"KUBE-CLUSTER-IP"}, OtherMatches: true, Target: "ACCEPT"})
		}, []string{"shared-chain-matches-sets"}},
		{"a shared chain jumps to ipvs mode's", false, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "nat", "KUBE-SERVICES", inventory.Rule{To: "KUBE-NODE-PORT", OtherMatches: true})
		}, []string{"shared-chain-matches-sets"}},
		{"both backends", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Rulesets = append(r.Inventory.Rulesets, inventory.Ruleset{
				Section: offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, Family: kubeproxy.IPv4,
				Tables: []inventory.RuleTable{{Name: "nat", Chains: []inventory.Chain{{Name: "KUBE-SERVICES"}}}},
			})
		}, []string{"mixed-backends"}},
		{"both backends, nftables", true, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Rulesets = append(r.Inventory.Rulesets, inventory.Ruleset{
				Section: offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, Family: kubeproxy.IPv4,
				Tables: []inventory.RuleTable{{Name: "nat", Chains: []inventory.Chain{{Name: "KUBE-SERVICES"}}}},
			})
		}, nil},
		{"a jump like kube-proxy's, but for one interface", false, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "filter", "INPUT", inventory.Rule{To: "KUBE-NODE-PORT", Comment: "kubernetes health check rules", OtherMatches: true})
		}, []string{"foreign-jump"}},
		{"portmap marks by kube-proxy's chain", true, func(t *testing.T, r *cleanup.Reading) {
			addChain(r, "nat", inventory.Chain{Name: "CNI-HOSTPORT-SETMARK"})
			addRule(t, r, "nat", "CNI-HOSTPORT-SETMARK", inventory.Rule{To: "KUBE-MARK-MASQ"})
		}, []string{"foreign-jump"}},
		{"portmap marks by a chain that stays", false, func(t *testing.T, r *cleanup.Reading) {
			addChain(r, "nat", inventory.Chain{Name: "CNI-HOSTPORT-SETMARK"})
			addRule(t, r, "nat", "CNI-HOSTPORT-SETMARK", inventory.Rule{To: "KUBE-MARK-MASQ"})
		}, nil},
		{"docker's jump in a chain that goes", false, func(t *testing.T, r *cleanup.Reading) {
			addChain(r, "filter", inventory.Chain{Name: "DOCKER-USER"})
			addRule(t, r, "filter", "KUBE-NODE-PORT", inventory.Rule{To: "DOCKER-USER"})
		}, []string{"foreign-rule-inside"}},
		{"a plain rule of somebody's in a chain that goes", false, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "filter", "KUBE-NODE-PORT", inventory.Rule{Target: "ACCEPT", OtherMatches: true})
		}, []string{"foreign-rule-inside"}},
		{"a logging rule of somebody's in a chain that goes", true, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "nat", "KUBE-SERVICES", inventory.Rule{Target: "LOG", Comment: "kubernetes"})
		}, []string{"foreign-rule-inside"}},
		{"a plain rule of somebody's in a chain that stays", false, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "nat", "KUBE-SERVICES", inventory.Rule{Target: "LOG"})
		}, nil},
		{"somebody's rule matches a set", false, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "filter", "INPUT", inventory.Rule{Sets: []string{"KUBE-CLUSTER-IP"}, OtherMatches: true, Target: "ACCEPT"})
		}, []string{"foreign-set-match"}},
		{"somebody's table matches a set", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Tables = append(r.Inventory.Tables, inventory.Table{
				Table: kubeproxy.Table{Family: "inet", Name: "mine"}, SetMatches: []string{"KUBE-6-CLUSTER-IP"}})
		}, []string{"foreign-set-match"}},
		{"something out of sight holds a set", false, func(_ *testing.T, r *cleanup.Reading) { r.Inventory.Sets[0].References++ },
			[]string{"foreign-set-match"}},
		{"somebody uses the mark", true, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4).GetStable().GetIptables().ForeignMarks =
				[]*offrampv1.ForeignReference{{Table: "nat", FromChain: "MY-CHAIN"}}
		}, []string{"foreign-mark"}},
		{"a CNI configuration names a chain", true, func(_ *testing.T, r *cleanup.Reading) {
			setHost(r, &offrampv1.HostFacts{Files: []*offrampv1.HostFile{
				{Path: "/etc/cni/net.d/10.conflist", Kind: "cni configuration", Names: []string{"KUBE-MARK-MASQ"}}}})
		}, []string{"cni-configuration"}},
		{"a boot file names a set", false, func(_ *testing.T, r *cleanup.Reading) {
			setHost(r, &offrampv1.HostFacts{Files: []*offrampv1.HostFile{
				{Path: "/etc/iptables/rules.v4", Kind: "iptables rules", Names: []string{"KUBE-CLUSTER-IP"}}}})
		}, []string{"boot-file"}},
		{"a boot file names what stays", false, func(_ *testing.T, r *cleanup.Reading) {
			setHost(r, &offrampv1.HostFacts{Files: []*offrampv1.HostFile{
				{Path: "/etc/iptables/rules.v4", Kind: "iptables rules", Names: []string{"KUBE-MARK-MASQ", "ip_vs"}}}})
		}, nil},
		{"the host is out of sight", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_HOST).Stable =
				&offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "no"}
		}, []string{"host-unread"}},
		{"files that name what goes are out of sight", false, func(_ *testing.T, r *cleanup.Reading) {
			setHost(r, &offrampv1.HostFacts{Unreadable: []string{"/etc/iptables: permission denied"}})
		}, []string{"host-unread"}},
		{"what says nothing of names is out of sight", false, func(_ *testing.T, r *cleanup.Reading) {
			setHost(r, &offrampv1.HostFacts{Unreadable: []string{
				"/lib/modules/6.1.0: no list of modules is in sight", "versions of programs: no list of packages of dpkg or apk is in sight",
			}})
		}, nil},
		{"more is out of sight than is told", false, func(_ *testing.T, r *cleanup.Reading) {
			setHost(r, &offrampv1.HostFacts{Unreadable: slices.Repeat([]string{"/lib/modules: no"}, 20)})
		}, []string{"host-unread"}},
		{"connections", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS).Volatile = traffic(&offrampv1.IpvsVolatile{EstablishedConnections: 3})
		}, []string{"connections-through-ipvs"}},
		{"flows of UDP, of which nobody can tell whether they have ended", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS).Volatile = traffic(&offrampv1.IpvsVolatile{EstablishedConnections: 3, UdpFlows: 3})
		}, nil},
		{"connections beside flows of UDP", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS).Volatile = traffic(&offrampv1.IpvsVolatile{EstablishedConnections: 3, UdpFlows: 2})
		}, []string{"connections-through-ipvs"}},
		{"connections cannot be counted", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS).Volatile = traffic(&offrampv1.IpvsVolatile{TrafficError: "no"})
		}, []string{"connections-through-ipvs"}},
		{"sockets", false, func(_ *testing.T, r *cleanup.Reading) { withTwoSockets(r) }, []string{"sockets-with-vip"}},
		{"sockets cannot be listed", false, func(_ *testing.T, r *cleanup.Reading) { linkOf(r).SurroundingsError = "no" }, []string{"sockets-with-vip"}},
		{"FORWARD drops", true, func(t *testing.T, r *cleanup.Reading) { chainOf(t, r, "filter", "FORWARD").DropPolicy = true },
			[]string{"accept-under-drop"}},
		{"FORWARD ends in a REJECT", true, func(t *testing.T, r *cleanup.Reading) {
			addRule(t, r, "filter", "FORWARD", inventory.Rule{Target: "REJECT"})
		}, []string{"accept-under-drop"}},
		{"INPUT drops, but iptables mode accepts there too", false, func(t *testing.T, r *cleanup.Reading) {
			chainOf(t, r, "filter", "INPUT").DropPolicy = true
		}, nil},
		{"the API server is a virtual server", false, func(_ *testing.T, r *cleanup.Reading) {
			server := r.Inventory.Servers[slices.IndexFunc(r.Inventory.Servers, func(s inventory.VirtualServer) bool {
				return s.Protocol == "TCP" && s.Address.Port() != 443
			})]
			r.Inventory.APIServers = []inventory.APIServer{{File: "/etc/kubernetes/kubelet.conf", Host: server.Address.Addr().String(), Port: server.Address.Port()}}
		}, []string{"api-server-through-ipvs"}},
		{"the ordinary Service of the API server", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.APIServers = []inventory.APIServer{{File: "f", Host: "10.96.0.1", Port: 443}, {File: "f", Host: "api.example", Port: 443}}
		}, nil},
		{"keepalived's virtual server stands on kube-ipvs0", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Servers = append(r.Inventory.Servers, inventory.VirtualServer{
				Protocol: "TCP", Address: netip.MustParseAddrPort("10.96.0.1:8443"), Owner: "foreign:unidentified"})
		}, []string{"kept-server-needs-link"}},
		{"a virtual server of somebody's elsewhere", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Servers = append(r.Inventory.Servers, inventory.VirtualServer{
				Protocol: "TCP", Address: netip.MustParseAddrPort("10.0.2.15:8443"), Owner: "foreign:unidentified"},
				inventory.VirtualServer{Protocol: "FWM", FWMark: 7, Owner: "foreign:fwmark"})
		}, nil},
		{"servers could not be attributed", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS).GetStable().GetIpvs().AttributionError = "no"
		}, []string{"unattributed-server"}},
		{"a section kept changing", false, func(_ *testing.T, r *cleanup.Reading) {
			facts.Find(r.Facts, offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6).Stable =
				&offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_INCONSISTENT}
		}, []string{"section-unread"}},
		{"a section was not reported", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Facts.Sections = slices.DeleteFunc(r.Facts.GetSections(), func(s *offrampv1.Section) bool {
				return s.GetKind() == offrampv1.SectionKind_SECTION_KIND_ADDRESSES
			})
		}, []string{"section-unread"}},
		{"objects could not be read", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Problems = map[offrampv1.SectionKind]string{offrampv1.SectionKind_SECTION_KIND_IPSETS: "no"}
		}, []string{"section-unread"}},
		{"a table of a living process", false, func(_ *testing.T, r *cleanup.Reading) {
			r.Inventory.Tables = []inventory.Table{{Table: kubeproxy.Table{Family: "ip", Name: "kube-proxy"}, OwnedByProcess: true}}
		}, []string{"table-owned-by-process"}},
	}
	seen := map[string]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			reading, target := switched(t), iptables
			if c.twice {
				reading, target = switchedTwice(t), nftables
			}
			c.change(t, reading)
			plan := planOf(t, reading, target)
			if diff := cmp.Diff(c.want, guardIDs(plan)); diff != "" {
				t.Errorf("guards differ (-want +got):\n%s", diff)
			}
			for _, guard := range plan.GetGuards() {
				seen[guard.GetId()] = true
				if len(guard.GetEvidence()) == 0 || guard.GetTitle() == "" || guard.GetRemedy() == "" {
					t.Errorf("%s lacks evidence, title or remedy", guard.GetId())
				}
			}
		})
	}
	seen["shared-chain-jumps-to-iptables-mode"] = true // TestPlanOfEveryCaptureForEveryTarget
	for _, guard := range cleanup.Guards() {
		if !seen[guard.ID] && !slices.Contains(raisedByDoing(), guard.ID) {
			t.Errorf("no case raises %s", guard.ID)
		}
	}
}

func raisedByDoing() []string {
	return []string{
		cleanup.GuardLockHeld, cleanup.GuardCleanupRunning, cleanup.GuardNoRoom, cleanup.GuardNoDurableStorage,
		cleanup.GuardPlanChanged, cleanup.GuardNotDrained,
	}
}

func traffic(content *offrampv1.IpvsVolatile) *offrampv1.SectionVolatile {
	return &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_Ipvs{Ipvs: content}}
}

func withTwoSockets(reading *cleanup.Reading) {
	facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS_LINK).Volatile = &offrampv1.SectionVolatile{
		Content: &offrampv1.SectionVolatile_IpvsLink{IpvsLink: &offrampv1.IpvsLinkVolatile{Sockets: 2}},
	}
}

func linkOf(reading *cleanup.Reading) *offrampv1.IpvsLinkFacts {
	return facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS_LINK).GetStable().GetIpvsLink()
}

// What apply is to wait for, close or cut is no guard of the plan.
func TestDrainingAnswersItsGuards(t *testing.T) {
	reading := switched(t)
	facts.Find(reading.Facts, offrampv1.SectionKind_SECTION_KIND_IPVS).Volatile = traffic(&offrampv1.IpvsVolatile{EstablishedConnections: 3})
	withTwoSockets(reading)
	cases := []struct {
		draining cleanup.Draining
		want     []string
	}{
		{cleanup.Draining{}, []string{"connections-through-ipvs", "sockets-with-vip"}},
		{cleanup.Draining{Wait: time.Minute}, nil},
		{cleanup.Draining{MaxConnections: 2}, []string{"connections-through-ipvs", "sockets-with-vip"}},
		{cleanup.Draining{MaxConnections: 3}, []string{"sockets-with-vip"}},
		{cleanup.Draining{MaxConnections: 3, CloseSockets: true}, nil},
	}
	for _, c := range cases {
		plan, err := cleanup.MakePlan(reading, cleanup.Options{Target: iptables, Draining: c.draining}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, guardIDs(plan)); diff != "" {
			t.Errorf("%+v: guards differ (-want +got):\n%s", c.draining, diff)
		}
	}
}

// A reason counts for the guards that may be overridden, and for no other.
func TestOverrides(t *testing.T) {
	reading := switched(t)
	withTwoSockets(reading)
	reading.Inventory.Sets[0].References++
	reasons := map[string]string{"sockets-with-vip": "known", "foreign-set-match": "known"}
	plan, err := cleanup.MakePlan(reading, cleanup.Options{Target: iptables, Overrides: reasons}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	blocking := cleanup.Blocking(plan)
	if len(plan.GetGuards()) != 2 || len(blocking) != 1 || blocking[0].GetId() != "foreign-set-match" {
		t.Errorf("guards %v, in the way %v", plan.GetGuards(), blocking)
	}
}

// A node with nothing to remove is harmed by nothing; but what was not read may hold something.
func TestGuardsWhereNothingIsToDo(t *testing.T) {
	reading := captured(t, "ipvs", 0)
	proxyOf(reading).RunningMode = offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	if plan := planOf(t, reading, ipvs); len(plan.GetGuards()) > 0 || len(plan.GetOperations()) > 0 || cleanup.PlanExit(plan) != 0 {
		t.Errorf("guards %v, %d operations", guardIDs(plan), len(plan.GetOperations()))
	}
	reading.Inventory.Problems = map[offrampv1.SectionKind]string{offrampv1.SectionKind_SECTION_KIND_NFTABLES: "no"}
	if plan := planOf(t, reading, ipvs); cleanup.PlanExit(plan) != 4 {
		t.Errorf("exit code %d, want 4", cleanup.PlanExit(plan))
	}
}
