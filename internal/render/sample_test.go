package render

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// noon is the clock of every test.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(passed time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-passed)) }

func present(kind offrampv1.SectionKind, stable *offrampv1.SectionStable) *offrampv1.Section {
	stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
	return &offrampv1.Section{Kind: kind, Stable: stable, Volatile: &offrampv1.SectionVolatile{}}
}

func without(kind offrampv1.SectionKind, state offrampv1.SectionState, failure string) *offrampv1.Section {
	return &offrampv1.Section{Kind: kind, Stable: &offrampv1.SectionStable{State: state, Error: failure}}
}

// dirtyNode is the node of the capture ipvs-then-iptables: 85 virtual servers, 295 real servers, 34 sets with 261 entries,
// 68 addresses, all left beside iptables mode; and one virtual server that keepalived made.
func dirtyNode() *offrampv1.NodeFacts {
	return &offrampv1.NodeFacts{Node: "worker-1", AgentVersion: "v0.1.0", Sections: []*offrampv1.Section{
		dirtyKernel(), dirtyProxy(), dirtyIpvs(),
		present(offrampv1.SectionKind_SECTION_KIND_IPVS_LINK, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_IpvsLink{
			IpvsLink: &offrampv1.IpvsLinkFacts{LinkType: "dummy", Owner: "kube-proxy/ipvs", Ipv4Addresses: 34, Ipv6Addresses: 34}}}),
		present(offrampv1.SectionKind_SECTION_KIND_IPSETS, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipsets{
			Ipsets: &offrampv1.IpsetsFacts{Sets: 34, Entries: 261, Owners: []*offrampv1.OwnerCount{{Owner: "kube-proxy/ipvs", Count: 34}}}}}),
		dirtyIptables(),
		without(offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6, offrampv1.SectionState_SECTION_STATE_INCONSISTENT,
			"it kept changing while it was read"),
		without(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, offrampv1.SectionState_SECTION_STATE_ABSENT, ""),
		without(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, offrampv1.SectionState_SECTION_STATE_UNREADABLE,
			"asking for the table nat: operation not permitted"),
		present(offrampv1.SectionKind_SECTION_KIND_NFTABLES, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Nftables{
			Nftables: &offrampv1.NftablesFacts{Tables: 1, Owners: []*offrampv1.OwnerCount{{Owner: "foreign:firewalld", Count: 1}},
				Samples: []*offrampv1.NftTable{{Family: "inet", Name: "firewalld", Chains: 30, Sets: 1, Rules: 90, Owner: "foreign:firewalld"}}}}}),
		dirtySysctls(),
		present(offrampv1.SectionKind_SECTION_KIND_ADDRESSES, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Addresses{
			Addresses: &offrampv1.AddressesFacts{Count: 1, Samples: []*offrampv1.NodeAddress{{Interface: "eth0", Address: "192.0.2.11", PrefixLength: 24}}}}}),
		present(offrampv1.SectionKind_SECTION_KIND_HISTORY, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_History{
			History: &offrampv1.HistoryFacts{Durable: true, Since: ago(48 * time.Hour), ModeChanges: []*offrampv1.ModeChange{
				{At: ago(3 * time.Hour), From: offrampv1.ProxyMode_PROXY_MODE_IPVS, To: offrampv1.ProxyMode_PROXY_MODE_IPTABLES}}}}}),
	}}
}

func dirtyKernel() *offrampv1.Section {
	section := present(offrampv1.SectionKind_SECTION_KIND_KERNEL, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Kernel{
		Kernel: &offrampv1.KernelFacts{Release: "6.1.0-49-cloud-amd64", Machine: "x86_64", OsPrettyName: "Debian GNU/Linux 12 (bookworm)"}}})
	section.Volatile.Content = &offrampv1.SectionVolatile_Kernel{Kernel: &offrampv1.KernelVolatile{BootedAt: ago(50 * time.Hour)}}
	return section
}

func dirtyProxy() *offrampv1.Section {
	section := present(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{
		KubeProxy: &offrampv1.KubeProxyFacts{
			ConfiguredMode: offrampv1.ProxyMode_PROXY_MODE_IPTABLES, ConfiguredModeOrigin: offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT,
			ConfiguredModeSource: "/configz", RunningMode: offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
			RunningModeSource: "http://127.0.0.1:10249/proxyMode", Version: "v1.37.2", HostProcessesVisible: true,
			Processes: []*offrampv1.KubeProxyProcess{{Pid: 4711, Name: "kube-proxy", Args: []string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=worker-1"}}},
			Endpoints: []*offrampv1.KubeProxyEndpoint{
				{Url: "http://127.0.0.1:10249/proxyMode", Status: 200},
				{Url: "http://127.0.0.1:10256/healthz", Error: "connection refused"}},
		}}})
	section.Volatile.Content = &offrampv1.SectionVolatile_KubeProxy{KubeProxy: &offrampv1.KubeProxyVolatile{Syncs: []*offrampv1.FamilySync{
		{Family: offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4, LastSync: ago(time.Minute), LastQueued: ago(2 * time.Minute)},
		{Family: offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6, LastQueued: ago(2 * time.Minute), Failures: 3}}}}
	return section
}

func dirtyIpvs() *offrampv1.Section {
	section := present(offrampv1.SectionKind_SECTION_KIND_IPVS, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipvs{
		Ipvs: &offrampv1.IpvsFacts{VirtualServers: 86, RealServers: 296, RealServersWeightZero: 1,
			Schedulers: []*offrampv1.SchedulerCount{{Scheduler: "lc", VirtualServers: 85}, {Scheduler: "wrr", VirtualServers: 1}},
			Owners:     []*offrampv1.OwnerCount{{Owner: "foreign:keepalived", Count: 1}, {Owner: "kube-proxy/ipvs", Count: 85}},
			Samples: []*offrampv1.VirtualServer{
				{Protocol: "TCP", Address: "fd00::1", Port: 443, Scheduler: "wrr", RealServers: 1, Owner: "foreign:keepalived", Reason: "not on kube-ipvs0 and in no set of kube-proxy's"},
				{Protocol: "TCP", Address: "10.96.0.1", Port: 443, Scheduler: "lc", RealServers: 1, Owner: "kube-proxy/ipvs"}}}}})
	section.Volatile.Content = &offrampv1.SectionVolatile_Ipvs{Ipvs: &offrampv1.IpvsVolatile{ActiveConnections: 1234567, InactiveConnections: 8}}
	return section
}

func dirtyIptables() *offrampv1.Section {
	return present(offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Iptables{
		Iptables: &offrampv1.IptablesFacts{
			Tables: []*offrampv1.IptablesTable{{Name: "filter", Chains: 12, Rules: 40}, {Name: "nat", Chains: 190, Rules: 498}},
			Owners: []*offrampv1.ChainCount{
				{Table: "filter", Owner: "kube-proxy/shared", Chains: 6, Rules: 30, Jumps: 7},
				{Table: "nat", Owner: "kube-proxy/iptables", Chains: 170, Rules: 460}},
			SharedChainsMode: offrampv1.ProxyMode_PROXY_MODE_IPTABLES, ForeignReferenceCount: 1,
			ForeignReferences: []*offrampv1.ForeignReference{{Table: "nat", FromChain: "MY-CHAIN", ToChain: "KUBE-SERVICES"}},
		}}})
}

func dirtySysctls() *offrampv1.Section {
	yes := offrampv1.SectionState_SECTION_STATE_PRESENT
	return present(offrampv1.SectionKind_SECTION_KIND_SYSCTLS, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Sysctls{
		Sysctls: &offrampv1.SysctlsFacts{Values: []*offrampv1.Sysctl{
			{Path: "net/ipv4/vs/conntrack", Value: "1", IpvsModeValue: "1", State: yes},
			{Path: "net/ipv4/conf/all/arp_ignore", Value: "0", IpvsModeValue: "1", State: yes},
			{Path: "net/ipv4/vs/conn_reuse_mode", State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "permission denied"},
			{Path: "net/ipv4/vs/expire_nodest_conn", State: offrampv1.SectionState_SECTION_STATE_ABSENT}}}}})
}

func dirtyLeftovers() *offrampv1.Leftovers {
	return &offrampv1.Leftovers{VirtualServers: 85, Links: 1, LinkAddresses: 68, Ipsets: 34, IpsetEntries: 261, Chains: 9, Jumps: 1}
}

func dirtyAssessment() *offrampv1.Assessment {
	return &offrampv1.Assessment{
		Target: offrampv1.Target_TARGET_NFTABLES, Ready: offrampv1.Verdict_VERDICT_UNKNOWN, Verify: offrampv1.Verdict_VERDICT_BLOCKED,
		Phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY, RunningMode: offrampv1.ProxyMode_PROXY_MODE_IPTABLES, Leftovers: dirtyLeftovers(),
		Findings: []*offrampv1.Finding{
			{Id: "section-unreadable", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Scope: offrampv1.Scope_SCOPE_NODE, Undecided: true,
				Title:    "a part of the node could not be read",
				Evidence: []string{"iptables-legacy-ipv6: asking for the table nat: operation not permitted"},
				Remedy:   "run the agent as root:\nsudo offramp-agent inspect", Source: "DESIGN, promise 9"},
			{Id: "leftover-virtual-servers", Severity: offrampv1.Severity_SEVERITY_WARNING, Title: "virtual servers of ipvs mode are left",
				Evidence: []string{"85 virtual servers, such as TCP 10.96.0.1:443"}, Remedy: "plan a clean-up of this node"},
		},
	}
}

func cleanAssessment() *offrampv1.Assessment {
	return &offrampv1.Assessment{Target: offrampv1.Target_TARGET_NFTABLES, Ready: offrampv1.Verdict_VERDICT_READY,
		Verify: offrampv1.Verdict_VERDICT_READY, Phase: offrampv1.Phase_PHASE_UNAFFECTED,
		RunningMode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES, Leftovers: &offrampv1.Leftovers{}}
}

// bareNode is a host that never saw Kubernetes, read by an ordinary user.
func bareNode() *offrampv1.NodeFacts {
	absent, empty := offrampv1.SectionState_SECTION_STATE_ABSENT, offrampv1.SectionState_SECTION_STATE_EMPTY
	facts := &offrampv1.NodeFacts{Node: "build-host", AgentVersion: "dev"}
	for number := range int32(13) {
		kind := offrampv1.SectionKind(number + 1)
		state := absent
		if kind == offrampv1.SectionKind_SECTION_KIND_IPSETS || kind == offrampv1.SectionKind_SECTION_KIND_NFTABLES ||
			kind == offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4 {
			state = empty
		}
		facts.Sections = append(facts.Sections, without(kind, state, ""))
	}
	return facts
}

func sampleNodes() []*offrampv1.NodeSummary {
	return []*offrampv1.NodeSummary{
		{Node: "control-plane-1", AgentVersion: "v0.1.0", KernelRelease: "6.12.63-cloud-amd64", OsPrettyName: "Debian GNU/Linux 13 (trixie)",
			KubeProxyVersion: "v1.37.2", Assessment: cleanAssessment(), Connected: true, LastSeen: ago(12 * time.Second), ClockSkew: durationpb.New(0)},
		{Node: "worker-1", AgentVersion: "v0.1.0", KernelRelease: "6.1.0-49-cloud-amd64", OsPrettyName: "Debian GNU/Linux 12 (bookworm)",
			KubeProxyVersion: "v1.37.2", Assessment: dirtyAssessment(), LastSeen: ago(50 * time.Hour), ClockSkew: durationpb.New(-24 * time.Hour)},
		{Node: "worker-2", KernelRelease: "5.14.0-427.13.1.el9_4.x86_64"},
	}
}
