package cleanup_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// capturedFacts counts what the inventory holds, and adds what kube-proxy said.
func capturedFacts(t *testing.T, capture string, inv *inventory.Node, asserted offrampv1.ProxyMode) *offrampv1.NodeFacts {
	t.Helper()
	node := &offrampv1.NodeFacts{Node: "node-0"}
	add := func(kind offrampv1.SectionKind, there bool, stable *offrampv1.SectionStable, volatile *offrampv1.SectionVolatile) {
		stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
		if !there {
			stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_ABSENT}
		}
		node.Sections = append(node.Sections, &offrampv1.Section{Kind: kind, Stable: stable, Volatile: volatile})
	}
	stable, volatile := proxySection(t, capture, asserted)
	add(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY, true, stable, volatile)
	add(offrampv1.SectionKind_SECTION_KIND_IPVS, len(inv.Servers) > 0, ipvsFacts(inv), nil)
	add(offrampv1.SectionKind_SECTION_KIND_IPVS_LINK, inv.Link != nil, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_IpvsLink{IpvsLink: &offrampv1.IpvsLinkFacts{Owner: "kube-proxy/ipvs"}}}, nil)
	add(offrampv1.SectionKind_SECTION_KIND_IPSETS, false, &offrampv1.SectionStable{}, nil)
	for i := range inv.Rulesets {
		add(inv.Rulesets[i].Section, true, iptablesFacts(&inv.Rulesets[i]), nil)
	}
	add(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, false, &offrampv1.SectionStable{}, nil)
	add(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, false, &offrampv1.SectionStable{}, nil)
	add(offrampv1.SectionKind_SECTION_KIND_NFTABLES, len(inv.Tables) > 0, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Nftables{Nftables: &offrampv1.NftablesFacts{
			Owners: []*offrampv1.OwnerCount{{Owner: "kube-proxy/nftables", Count: uint64(len(inv.Tables))}}}}}, nil)
	for _, kind := range []offrampv1.SectionKind{
		offrampv1.SectionKind_SECTION_KIND_KERNEL, offrampv1.SectionKind_SECTION_KIND_SYSCTLS,
		offrampv1.SectionKind_SECTION_KIND_ADDRESSES, offrampv1.SectionKind_SECTION_KIND_HISTORY,
		offrampv1.SectionKind_SECTION_KIND_HOST,
	} {
		add(kind, false, &offrampv1.SectionStable{}, nil)
	}
	return node
}

func ipvsFacts(inv *inventory.Node) *offrampv1.SectionStable {
	owners := map[kubeproxy.Owner]uint64{}
	for _, server := range inv.Servers {
		owners[server.Owner]++
	}
	facts := &offrampv1.IpvsFacts{VirtualServers: uint64(len(inv.Servers))}
	for owner, count := range owners {
		facts.Owners = append(facts.Owners, &offrampv1.OwnerCount{Owner: string(owner), Count: count})
	}
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipvs{Ipvs: facts}}
}

func iptablesFacts(rules *inventory.Ruleset) *offrampv1.SectionStable {
	facts := &offrampv1.IptablesFacts{SharedChainsMode: offrampv1.ProxyMode_PROXY_MODE_NONE}
	rules.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
		if owner := chain.Owner(table.Name, rules.Family); owner != kubeproxy.OwnerKernel {
			facts.Owners = append(facts.Owners, &offrampv1.ChainCount{Table: table.Name, Owner: string(owner), Chains: 1})
		}
		if table.Name != "nat" || chain.Name != "KUBE-SERVICES" {
			return
		}
		var content []kubeproxy.ChainRule
		for _, rule := range chain.Rules {
			content = append(content, kubeproxy.ChainRule{HasSetMatch: len(rule.Sets) > 0, Comment: rule.Comment, To: rule.To})
		}
		facts.SharedChainsMode = kubeproxy.SharedChainsMode(content)
	})
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Iptables{Iptables: facts}}
}

func proxySection(t *testing.T, capture string, asserted offrampv1.ProxyMode) (*offrampv1.SectionStable, *offrampv1.SectionVolatile) {
	t.Helper()
	modes := map[string]offrampv1.ProxyMode{
		"ipvs": offrampv1.ProxyMode_PROXY_MODE_IPVS, "iptables": offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
		"nftables": offrampv1.ProxyMode_PROXY_MODE_NFTABLES, "": offrampv1.ProxyMode_PROXY_MODE_UNKNOWN,
	}
	proxy := &offrampv1.KubeProxyFacts{
		RunningMode: modes[strings.TrimSpace(fileOf(t, capture, "proxyMode.txt"))], HostProcessesVisible: true,
	}
	now := &offrampv1.KubeProxyVolatile{}
	if proxy.RunningMode != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		proxy.Processes = []*offrampv1.KubeProxyProcess{{Pid: 7, Name: "kube-proxy"}}
		proxy.Families = []offrampv1.AddressFamily{1, 2}
		now.HealthStatus = 200
		now.Syncs = []*offrampv1.FamilySync{syncOf(t, capture, 1, "IPv4"), syncOf(t, capture, 2, "IPv6")}
	}
	if asserted != 0 {
		proxy.RunningMode = asserted
	}
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{KubeProxy: proxy}},
		&offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: now}}
}

func syncOf(t *testing.T, capture string, family offrampv1.AddressFamily, label string) *offrampv1.FamilySync {
	t.Helper()
	at := func(metric string) *timestamppb.Timestamp {
		_, rest, found := strings.Cut(fileOf(t, capture, "metrics.txt"), "\n"+metric+`{ip_family="`+label+`"} `)
		if !found {
			return nil
		}
		value, _, _ := strings.Cut(rest, "\n")
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		return timestamppb.New(time.UnixMicro(int64(seconds * 1e6)))
	}
	return &offrampv1.FamilySync{
		Family: family, LastSync: at("kubeproxy_sync_proxy_rules_last_timestamp_seconds"),
		LastQueued: at("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"),
	}
}
