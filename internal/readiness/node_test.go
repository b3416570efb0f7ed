package readiness_test

import (
	"slices"
	"time"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// testNode is a node to be spoiled: every section can be read, kube-proxy is in sync, nothing is left.
type testNode struct {
	kernel     *offrampv1.KernelFacts
	proxy      *offrampv1.KubeProxyFacts
	now        *offrampv1.KubeProxyVolatile
	ipvs       *offrampv1.IpvsFacts
	link       *offrampv1.IpvsLinkFacts // nil: there is none
	ipsets     *offrampv1.IpsetsFacts
	tables     map[offrampv1.SectionKind]*offrampv1.IptablesFacts // missing: no such backend
	nft        *offrampv1.NftablesFacts
	sysctls    []*offrampv1.Sysctl
	history    *offrampv1.HistoryFacts
	host       *offrampv1.HostFacts
	addresses  *offrampv1.AddressesFacts
	traffic    *offrampv1.IpvsVolatile
	booted     int64  // second of the boot
	tracked    uint64 // connections
	unreadable map[offrampv1.SectionKind]bool
}

const (
	iptablesMode = offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	ipvsMode     = offrampv1.ProxyMode_PROXY_MODE_IPVS
	nftablesMode = offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	noMode       = offrampv1.ProxyMode_PROXY_MODE_NONE
	unknownMode  = offrampv1.ProxyMode_PROXY_MODE_UNKNOWN

	toNFTables = offrampv1.Target_TARGET_NFTABLES
	toIPTables = offrampv1.Target_TARGET_IPTABLES
	toNone     = offrampv1.Target_TARGET_NONE
	toIPVS     = offrampv1.Target_TARGET_IPVS
)

// clean is a node that is all right in a mode.
func clean(mode offrampv1.ProxyMode) *testNode {
	n := &testNode{
		kernel: &offrampv1.KernelFacts{Release: "6.1.0", Major: 6, Minor: 1},
		proxy: &offrampv1.KubeProxyFacts{
			ConfiguredMode: mode, RunningMode: mode, HostProcessesVisible: true,
			Families: []offrampv1.AddressFamily{1, 2},
		},
		now:        &offrampv1.KubeProxyVolatile{HealthStatus: 200, Syncs: []*offrampv1.FamilySync{synced(1), synced(2)}},
		ipvs:       &offrampv1.IpvsFacts{},
		ipsets:     &offrampv1.IpsetsFacts{},
		tables:     map[offrampv1.SectionKind]*offrampv1.IptablesFacts{kinds.nft4: kubelets(), kinds.nft6: kubelets()},
		nft:        &offrampv1.NftablesFacts{},
		history:    &offrampv1.HistoryFacts{Durable: true},
		host:       &offrampv1.HostFacts{ConntrackMax: 1000, LocalPortMin: 32768, LocalPortMax: 60999},
		addresses:  &offrampv1.AddressesFacts{},
		traffic:    &offrampv1.IpvsVolatile{},
		unreadable: map[offrampv1.SectionKind]bool{},
	}
	n.addMode(mode)
	return n
}

// addMode puts into the kernel what a mode puts there.
func (n *testNode) addMode(mode offrampv1.ProxyMode) {
	switch mode {
	case iptablesMode:
		n.fill(kinds.nft4, mode, "kube-proxy/iptables")
		n.fill(kinds.nft6, mode, "kube-proxy/iptables")
	case ipvsMode:
		n.fill(kinds.nft4, mode, "kube-proxy/ipvs")
		n.fill(kinds.nft6, mode, "kube-proxy/ipvs")
		n.addServers("kube-proxy/ipvs", 3)
		n.link = &offrampv1.IpvsLinkFacts{LinkType: "dummy", Owner: "kube-proxy/ipvs", Ipv4Addresses: 2, Ipv6Addresses: 1}
		n.addSets("kube-proxy/ipvs", 34, 5)
	case nftablesMode:
		n.nft.Owners = append(n.nft.GetOwners(), &offrampv1.OwnerCount{Owner: "kube-proxy/nftables", Count: 2})
	}
	if mode == noMode || mode == unknownMode {
		n.now = &offrampv1.KubeProxyVolatile{}
		n.proxy.Families = nil
		return
	}
	n.proxy.Processes = []*offrampv1.KubeProxyProcess{{Pid: 7, Name: "kube-proxy"}}
}

func (n *testNode) fill(kind offrampv1.SectionKind, mode offrampv1.ProxyMode, owner string) {
	if n.tables[kind] == nil {
		n.tables[kind] = &offrampv1.IptablesFacts{}
	}
	n.tables[kind].SharedChainsMode = mode
	n.addChains(kind, "kube-proxy/shared", 3, 3)
	n.addChains(kind, owner, 2, 0)
}

func (n *testNode) addChains(kind offrampv1.SectionKind, owner string, chains, jumps uint64) {
	n.tables[kind].Owners = append(n.tables[kind].Owners, &offrampv1.ChainCount{
		Table: "nat", Owner: owner, Chains: chains, Jumps: jumps,
	})
}

func (n *testNode) addServers(owner string, count uint64) {
	n.ipvs.Owners = append(n.ipvs.Owners, &offrampv1.OwnerCount{Owner: owner, Count: count})
	n.ipvs.VirtualServers += count
	n.ipvs.Samples = append(n.ipvs.Samples, &offrampv1.VirtualServer{
		Protocol: "TCP", Address: "192.0.2.1", Port: 80, Scheduler: "wlc", Owner: owner, Reason: "because",
	})
}

func (n *testNode) addSets(owner string, sets, entries uint64) {
	n.ipsets.Owners = append(n.ipsets.Owners, &offrampv1.OwnerCount{Owner: owner, Count: sets})
	n.ipsets.Samples = append(n.ipsets.Samples, &offrampv1.Ipset{Name: "x", Owner: owner, Entries: entries})
}

func (n *testNode) setSysctl(path, value string) {
	n.sysctls = append(n.sysctls, &offrampv1.Sysctl{Path: path, Value: value, State: offrampv1.SectionState_SECTION_STATE_PRESENT})
}

// kubelets are the tables of a node on which only kubelet has chains.
func kubelets() *offrampv1.IptablesFacts {
	return &offrampv1.IptablesFacts{
		SharedChainsMode: noMode, Owners: []*offrampv1.ChainCount{{Table: "mangle", Owner: "kubelet", Chains: 2}},
	}
}

func synced(family offrampv1.AddressFamily) *offrampv1.FamilySync {
	return &offrampv1.FamilySync{Family: family, LastQueued: second(10), LastSync: second(11)}
}

func second(seconds int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(seconds, 0)) }

// facts is the node as it is reported.
func (n *testNode) facts() *offrampv1.NodeFacts {
	facts := &offrampv1.NodeFacts{Node: "node-0"}
	for kind := kinds.kernel; kind <= kinds.host; kind++ {
		stable := n.stable(kind)
		stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
		if stable.GetContent() == nil {
			stable.State = offrampv1.SectionState_SECTION_STATE_ABSENT
		}
		if n.unreadable[kind] {
			stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "no permission"}
		}
		facts.Sections = append(facts.Sections, &offrampv1.Section{Kind: kind, Stable: stable, Volatile: n.volatile(kind)})
	}
	return facts
}

func (n *testNode) volatile(kind offrampv1.SectionKind) *offrampv1.SectionVolatile {
	switch kind {
	case kinds.kubeProxy:
		return &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: n.now}}
	case kinds.ipvs:
		return &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_Ipvs{Ipvs: n.traffic}}
	case kinds.kernel:
		return &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_Kernel{Kernel: &offrampv1.KernelVolatile{BootedAt: second(n.booted)}}}
	case kinds.host:
		return &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_Host{Host: &offrampv1.HostVolatile{ConntrackCount: n.tracked}}}
	default:
		return nil
	}
}

func (n *testNode) stable(kind offrampv1.SectionKind) *offrampv1.SectionStable {
	switch kind {
	case kinds.kernel:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Kernel{Kernel: n.kernel}}
	case kinds.kubeProxy:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{KubeProxy: n.proxy}}
	case kinds.ipvs:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipvs{Ipvs: n.ipvs}}
	case kinds.ipsets:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipsets{Ipsets: n.ipsets}}
	case kinds.nftables:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Nftables{Nftables: n.nft}}
	case kinds.sysctls:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Sysctls{
			Sysctls: &offrampv1.SysctlsFacts{Values: n.sysctls},
		}}
	case kinds.history:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_History{History: n.history}}
	case kinds.host:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Host{Host: n.host}}
	case kinds.addresses:
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Addresses{Addresses: n.addresses}}
	}
	if kind == kinds.link && n.link != nil {
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_IpvsLink{IpvsLink: n.link}}
	}
	if tables := n.tables[kind]; tables != nil {
		return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Iptables{Iptables: tables}}
	}
	return &offrampv1.SectionStable{}
}

// find returns the finding of a rule, nil when it says nothing.
func find(assessment *offrampv1.Assessment, id string) *offrampv1.Finding {
	i := slices.IndexFunc(assessment.GetFindings(), func(f *offrampv1.Finding) bool { return f.GetId() == id })
	if i < 0 {
		return nil
	}
	return assessment.GetFindings()[i]
}

func assess(n *testNode, target offrampv1.Target) *offrampv1.Assessment {
	return readiness.Assess(n.facts(), target)
}
