package readiness_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// change makes a node of the fixture fleet different from its capture.
type change struct {
	name  string
	apply func(*offrampv1.NodeFacts)
}

func sectionOf(facts *offrampv1.NodeFacts, kind offrampv1.SectionKind) *offrampv1.Section {
	for _, section := range facts.GetSections() {
		if section.GetKind() == kind {
			return section
		}
	}
	return &offrampv1.Section{}
}

func kernelOf(release string, major, minor uint32) change {
	return change{release, func(facts *offrampv1.NodeFacts) {
		kernel := sectionOf(facts, kinds.kernel).GetStable().GetKernel()
		kernel.Release, kernel.Major, kernel.Minor = release, major, minor
	}}
}

// withHost gives the node a HOST section, which captures do not have.
func withHost(name string, fill func(*offrampv1.HostFacts)) change {
	return change{name, func(facts *offrampv1.NodeFacts) {
		host := &offrampv1.HostFacts{ConntrackMax: 262144, LocalPortMin: 32768, LocalPortMax: 60999}
		fill(host)
		sectionOf(facts, kinds.host).Stable = &offrampv1.SectionStable{
			State: offrampv1.SectionState_SECTION_STATE_PRESENT, Content: &offrampv1.SectionStable_Host{Host: host},
		}
	}}
}

func programs(names ...string) change {
	return withHost(strings.Join(names, "+"), func(host *offrampv1.HostFacts) { host.ProgramsSeen = names })
}

func missingModule(name string, mode offrampv1.ProxyMode) change {
	return withHost("no "+name, func(host *offrampv1.HostFacts) {
		host.Features = []*offrampv1.KernelFeature{{Name: name, State: offrampv1.FeatureState_FEATURE_STATE_MISSING, NeededBy: []offrampv1.ProxyMode{mode}}}
	})
}

func bootFile() change {
	return withHost("rules.v4", func(host *offrampv1.HostFacts) {
		host.Files = []*offrampv1.HostFile{{Path: "/etc/iptables/rules.v4", Kind: "iptables rules", Names: []string{"KUBE-HEALTH-CHECK-NODE-PORT"}}}
	})
}

func foreignServer(owner string, port uint32) change {
	return change{fmt.Sprint(owner, ":", port), func(facts *offrampv1.NodeFacts) {
		section := sectionOf(facts, kinds.ipvs)
		if section.GetStable().GetIpvs() == nil {
			section.Stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_PRESENT, Content: &offrampv1.SectionStable_Ipvs{Ipvs: &offrampv1.IpvsFacts{}}}
		}
		ipvs := section.GetStable().GetIpvs()
		ipvs.VirtualServers++
		ipvs.Owners = append(ipvs.Owners, &offrampv1.OwnerCount{Owner: owner, Count: 1})
		ipvs.Samples = append(ipvs.Samples, &offrampv1.VirtualServer{Protocol: "TCP", Address: "10.103.97.2", Port: port, Scheduler: "rr", Owner: owner, Reason: "by hand"})
	}}
}

func unreadableSection(kind offrampv1.SectionKind) change {
	return change{"no " + kind.String(), func(facts *offrampv1.NodeFacts) {
		sectionOf(facts, kind).Stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "permission denied"}
	}}
}

func configured(name string, fill func(*offrampv1.KubeProxyFacts)) change {
	return change{name, func(facts *offrampv1.NodeFacts) { fill(sectionOf(facts, kinds.kubeProxy).GetStable().GetKubeProxy()) }}
}

func noModeNamed() change {
	return configured("no mode named", func(proxy *offrampv1.KubeProxyFacts) {
		proxy.ConfiguredModeOrigin = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	})
}

func configuredFor(mode offrampv1.ProxyMode) change {
	return configured("configured "+strings.ToLower(strings.TrimPrefix(mode.String(), "PROXY_MODE_")), func(proxy *offrampv1.KubeProxyFacts) { proxy.ConfiguredMode = mode })
}

func portmap() change {
	return change{"portmap", func(facts *offrampv1.NodeFacts) {
		iptables := sectionOf(facts, kinds.nft4).GetStable().GetIptables()
		iptables.ForeignReferenceCount = 1
		iptables.ForeignReferences = []*offrampv1.ForeignReference{{Table: "nat", FromChain: "CNI-HOSTPORT-SETMARK", ToChain: "KUBE-MARK-MASQ"}}
	}}
}

func sick() change {
	return change{"sick", func(facts *offrampv1.NodeFacts) {
		if now := sectionOf(facts, kinds.kubeProxy).GetVolatile().GetKubeProxy(); now != nil {
			now.HealthStatus = 503
		}
	}}
}

func unchanged() change { return change{"", func(*offrampv1.NodeFacts) {}} }

// fixture is one node of the fleet.
type fixture struct {
	name, capture string
	mode          offrampv1.ProxyMode
	changes       []change
}

func (f fixture) facts(t *testing.T) *offrampv1.NodeFacts {
	t.Helper()
	facts := captureFacts(t, f.capture, f.mode)
	facts.Node = f.name
	for _, change := range f.changes {
		change.apply(facts)
	}
	return facts
}

// known is a node of which a person said, from the facts alone and before the code, what the answers are: ready for nftables and for
// iptables, the phase, and the findings for nftables beside those of the capture itself.
type knownNode struct {
	fixture
	toNFT, toIPT offrampv1.Verdict
	phase        offrampv1.Phase
	more         []string
}

const (
	onIPVS   = offrampv1.Phase_PHASE_ON_IPVS
	dirty    = offrampv1.Phase_PHASE_SWITCHED_DIRTY
	untouch  = offrampv1.Phase_PHASE_UNAFFECTED
	unknowns = offrampv1.Phase_PHASE_UNKNOWN
)

func knownFleet() []knownNode {
	ipvs := func(changes ...change) fixture { return fixture{capture: "ipvs", changes: changes} }
	iptables := func(changes ...change) fixture { return fixture{capture: "iptables", changes: changes} }
	nftables := func(changes ...change) fixture { return fixture{capture: "nftables", changes: changes} }
	toIptables := func(changes ...change) fixture {
		return fixture{capture: "ipvs-then-iptables", changes: changes}
	}
	toNftables := func(changes ...change) fixture {
		return fixture{capture: "ipvs-then-nftables", changes: changes}
	}
	const hash = "foreign:unidentified"
	nodes := []knownNode{
		// A plain node on ipvs with a kernel of today can go anywhere.
		{ipvs(), yes, yes, onIPVS, nil},
		// Debian 11, Amazon Linux 2, Enterprise Linux 8: too old for nftables mode, whatever the vendor brought back.
		{ipvs(kernelOf("5.10.0-32-amd64", 5, 10)), blocked, yes, onIPVS, []string{"kernel-too-old", "conntrack-resets"}},
		{ipvs(kernelOf("4.18.0-553.el8_10.x86_64", 4, 18)), blocked, yes, onIPVS, []string{"kernel-too-old", "conntrack-resets"}},
		{ipvs(kernelOf("4.14.355-275.amzn2.x86_64", 4, 14)), blocked, yes, onIPVS, []string{"kernel-too-old", "conntrack-resets"}},
		// 5.15 is new enough, but before 6.1 connections may be reset.
		{ipvs(kernelOf("5.15.0-1066-azure", 5, 15)), yes, yes, onIPVS, []string{"conntrack-resets"}},
		{ipvs(kernelOf("6.12.9", 6, 12)), yes, yes, onIPVS, nil},
		// A custom kernel of which nobody can say how old it is.
		{ipvs(kernelOf("custom", 0, 0)), unsure, yes, onIPVS, []string{"kernel-too-old"}},
		// Enterprise Linux 10 without the xtables modules: iptables mode is the one that fails there.
		{ipvs(missingModule("xt_statistic", iptablesMode)), yes, blocked, onIPVS, nil},
		{ipvs(missingModule("nft_fib_ipv4", nftablesMode)), blocked, yes, onIPVS, []string{"kernel-feature-missing"}},
		// keepalived on the node: a start of nftables mode empties its table.
		{ipvs(foreignServer(hash, 80)), blocked, yes, onIPVS, []string{"foreign-virtual-servers"}},
		// lvscare: the node's way to the API server.
		{ipvs(foreignServer(hash, 6443)), blocked, yes, onIPVS, []string{"api-server-through-ipvs", "foreign-virtual-servers"}},
		// Firewalls of the host warn, they do not block.
		{ipvs(programs("firewalld")), yes, yes, onIPVS, []string{"host-firewall-drops"}},
		{ipvs(programs("ufw", "docker")), yes, yes, onIPVS, []string{"host-firewall-drops"}},
		{ipvs(programs("nodelocaldns")), yes, yes, onIPVS, []string{"node-local-dns"}},
		{ipvs(bootFile()), yes, yes, onIPVS, []string{"boot-file-names-objects"}},
		{ipvs(portmap()), yes, yes, onIPVS, []string{"foreign-references"}},
		// The configuration was changed, and nobody restarted kube-proxy.
		{ipvs(configuredFor(nftablesMode)), yes, yes, onIPVS, []string{"modes-disagree"}},
		// What cannot be read leaves it open.
		{ipvs(unreadableSection(kinds.ipsets)), unsure, unsure, onIPVS, []string{"section-unreadable"}},
		{ipvs(unreadableSection(kinds.kubeProxy)), unsure, unsure, unknowns, nil},
		{ipvs(sick()), blocked, blocked, onIPVS, []string{"kube-proxy-not-in-sync"}},
		// iptables mode without a mode written down, with an old and with a new kernel.
		{iptables(noModeNamed(), kernelOf("5.10.0-32-amd64", 5, 10)), blocked, yes, untouch, []string{"kernel-too-old", "conntrack-resets", "mode-not-explicit"}},
		{iptables(noModeNamed()), yes, yes, untouch, []string{"mode-not-explicit"}},
		{iptables(configuredFor(ipvsMode)), yes, yes, untouch, []string{"ipvs-configured", "modes-disagree"}},
		{iptables(programs("ufw")), yes, yes, untouch, []string{"host-firewall-drops"}},
		// There already.
		{nftables(), yes, yes, untouch, nil},
		{nftables(kernelOf("5.10.0-32-amd64", 5, 10)), yes, yes, untouch, []string{"kernel-too-old", "conntrack-resets"}},
		{nftables(foreignServer(hash, 80)), yes, yes, untouch, []string{"foreign-virtual-servers"}},
		// Switched and dirty: nothing stands in the way, but something is left.
		{toIptables(), yes, yes, dirty, nil},
		{toNftables(bootFile()), yes, yes, dirty, []string{"boot-file-names-objects"}},
		// The first sync failed for good: IPVS still carries the traffic.
		{fixture{capture: "iptables-sync-failed"}, blocked, blocked, dirty, nil},
	}
	for i := range nodes {
		nodes[i].name = fmt.Sprintf("known-%02d", i+1)
	}
	return nodes
}

// ofCapture are the findings for nftables that a capture has by itself (TestFindingsOfEveryCapture).
func ofCapture(t *testing.T, capture string) []string {
	t.Helper()
	return idsOf(readiness.Assess(captureFacts(t, capture, 0), toNFTables))
}

func idsOf(assessment *offrampv1.Assessment) []string {
	ids := []string{}
	for _, finding := range assessment.GetFindings() {
		ids = append(ids, finding.GetId())
	}
	slices.Sort(ids)
	return ids
}

func TestThirtyNodesOfWhichAPersonSaidTheAnswers(t *testing.T) {
	nodes := knownFleet()
	if len(nodes) != 30 {
		t.Fatalf("%d nodes", len(nodes))
	}
	for _, n := range nodes {
		facts := n.facts(t)
		nft, ipt := readiness.Assess(facts, toNFTables), readiness.Assess(facts, toIPTables)
		if nft.GetReady() != n.toNFT || ipt.GetReady() != n.toIPT || nft.GetPhase() != n.phase {
			t.Errorf("%s (%s %v): nftables %v, iptables %v, %v; want %v, %v, %v", n.name, n.capture, n.changes, nft.GetReady(), ipt.GetReady(), nft.GetPhase(), n.toNFT, n.toIPT, n.phase)
		}
		for _, id := range n.more {
			if find(nft, id) == nil {
				t.Errorf("%s (%s %v) does not say %s: %v", n.name, n.capture, n.changes, id, idsOf(nft))
			}
		}
		own := ofCapture(t, n.capture)
		for _, id := range idsOf(nft) {
			blind := facts.GetSections() != nil && n.name == "known-19"
			if !blind && !slices.Contains(n.more, id) && !slices.Contains(own, id) {
				t.Errorf("%s (%s %v) says %s, which nobody expected", n.name, n.capture, n.changes, id)
			}
		}
	}
}

// wholeFleet is the thirty and 170 more: every capture in every one of the ways above.
func wholeFleet() []fixture {
	var fleet []fixture
	for _, n := range knownFleet() {
		fleet = append(fleet, n.fixture)
	}
	captures := []string{"ipvs", "iptables", "nftables", "ipvs-then-iptables", "ipvs-then-nftables", "after-kube-proxy-cleanup", "iptables-sync-failed"}
	changes := []change{
		unchanged(), kernelOf("5.10.0-32-amd64", 5, 10), kernelOf("4.18.0-553.el8_10.x86_64", 4, 18), kernelOf("5.15.0-1066-azure", 5, 15),
		kernelOf("6.12.9", 6, 12), kernelOf("custom", 0, 0), missingModule("xt_statistic", iptablesMode), missingModule("nft_fib_ipv4", nftablesMode),
		foreignServer("foreign:unidentified", 80), foreignServer("foreign:unidentified", 6443), foreignServer("foreign:fwmark", 0), programs("firewalld"),
		programs("nodelocaldns"), bootFile(), portmap(), configuredFor(nftablesMode), configuredFor(ipvsMode), noModeNamed(), sick(),
		unreadableSection(kinds.ipsets), unreadableSection(kinds.kubeProxy), unreadableSection(kinds.nft4), unreadableSection(kinds.history), unreadableSection(kinds.host),
		foreignServer("unknown", 443),
	}
	for _, capture := range captures {
		for _, c := range changes {
			if len(fleet) < 200 {
				fleet = append(fleet, fixture{name: fmt.Sprintf("node-%03d", len(fleet)+1), capture: capture, changes: []change{c}})
			}
		}
	}
	return fleet
}

const fleetGolden = "testdata/fleet.txt"

// TestTwoHundredNodes compares with answers that were reviewed one by one: a line a node.
func TestTwoHundredNodes(t *testing.T) {
	lines := &strings.Builder{}
	for _, node := range wholeFleet() {
		facts := node.facts(t)
		var names []string
		for _, change := range node.changes {
			names = append(names, change.name)
		}
		fmt.Fprintf(lines, "%s %s [%s]", node.name, node.capture, strings.Join(names, ", "))
		for _, target := range []offrampv1.Target{toNFTables, toIPTables, toNone} {
			got := readiness.Assess(facts, target)
			fmt.Fprintf(lines, " %s=%s/%s", short(target.String()), short(got.GetReady().String()), short(got.GetVerify().String()))
		}
		nft := readiness.Assess(facts, toNFTables)
		fmt.Fprintf(lines, " %s: %s\n", short(nft.GetPhase().String()), strings.Join(idsOf(nft), " "))
	}
	if *update {
		if err := os.WriteFile(fleetGolden, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(fleetGolden)
	if err != nil || string(want) != lines.String() {
		t.Errorf("the fleet is judged otherwise than %s has it (%v); look at the difference and write it anew with -update", fleetGolden, err)
	}
	if got := strings.Count(lines.String(), "\n"); got != 200 {
		t.Errorf("%d nodes", got)
	}
}

func short(name string) string { return strings.ToLower(name[strings.Index(name, "_")+1:]) }
