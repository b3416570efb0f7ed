package render

import (
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func sampleFleet() *offrampv1.GetReadinessResponse {
	return &offrampv1.GetReadinessResponse{
		Target: offrampv1.Target_TARGET_NFTABLES, At: ago(0), Nodes: 1203, Ready: 1100, Blocked: 100, Unknown: 3, WithLeftovers: 40, Silent: 1,
		Verdict: offrampv1.Verdict_VERDICT_BLOCKED, NotApplicable: 2, NeverSeen: 2, NeverSeenSamples: []string{"worker-10", "worker-11"},
		Phases: []*offrampv1.PhaseCount{{Phase: offrampv1.Phase_PHASE_ON_IPVS, Nodes: 100}, {Phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY, Nodes: 40},
			{Phase: offrampv1.Phase_PHASE_DONE, Nodes: 1062}, {Phase: offrampv1.Phase_PHASE_SILENT, Nodes: 1}},
		Pools: []*offrampv1.GroupCount{{Name: "", Nodes: 3, Ready: 1, Unknown: 2},
			{Name: "gpu", Nodes: 100, Blocked: 100}, {Name: "web", Nodes: 1100, Ready: 1099, Unknown: 1, WithLeftovers: 40}},
		Findings: []*offrampv1.FindingCount{
			{Id: "kernel-too-old", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Title: "the kernel is too old for nftables mode", Nodes: 100,
				Remedy:      "boot a kernel of version 5.13 or newer, or stay on iptables mode",
				NodeSamples: []string{"worker-1", "worker-2", "worker-3", "worker-4", "worker-5", "worker-6"}, Undecided: 3, Accepted: 1},
			{Id: "leftover-ipsets", Severity: offrampv1.Severity_SEVERITY_WARNING, Title: "ipsets of ipvs mode are left", Nodes: 1, NodeSamples: []string{"worker-7"}},
			{Id: "on-ipvs", Severity: offrampv1.Severity_SEVERITY_INFO, Title: "kube-proxy runs in ipvs mode", Nodes: 100}},
		SilentSamples: []string{"worker-9"}, Leftovers: dirtyLeftovers(), ListeningSince: ago(2 * time.Hour),
		ClusterFindings: sampleClusterFindings(), Steps: sampleSteps(),
		Unread: []*offrampv1.ClusterSource{{Kind: "events", State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "events is forbidden"}},
	}
}

// alone is a fleet whose aggregator has no Kubernetes API, just started.
func alone() *offrampv1.GetReadinessResponse {
	return &offrampv1.GetReadinessResponse{Target: offrampv1.Target_TARGET_IPTABLES, At: ago(0), Nodes: 1, Ready: 1, Verdict: offrampv1.Verdict_VERDICT_READY,
		Leftovers: &offrampv1.Leftovers{Undecided: true}, ListeningSince: ago(90 * time.Second), Pools: []*offrampv1.GroupCount{{Nodes: 1, Ready: 1}},
		Unread: []*offrampv1.ClusterSource{{Kind: "kubernetes", Error: "the Kubernetes API is not asked, or has not answered yet"}}}
}

// crowded has more of everything than a summary shows.
func crowded() *offrampv1.GetReadinessResponse {
	fleet := sampleFleet()
	for range 5 {
		fleet.Findings = append(fleet.Findings, fleet.GetFindings()...)
		fleet.Pools = append(fleet.Pools, fleet.GetPools()...)
	}
	return fleet
}

func asked140() *offrampv1.GetReadinessResponse {
	fleet := sampleFleet()
	fleet.Upgrade = &offrampv1.UpgradeAnswer{Version: "1.40", Verdict: offrampv1.Verdict_VERDICT_BLOCKED,
		Reasons: []string{"100 nodes: on ipvs, with which kube-proxy 1.40 does not start (worker-1 worker-2 worker-3 …)", "1 nodes: not heard of in time (worker-9)"},
		Milestones: []*offrampv1.Milestone{{Version: "1.35", What: "kube-proxy warns at each start in ipvs mode", Source: "KEP-5495"},
			{Version: "1.40", What: "KubeProxyIPVS is off by default: kube-proxy with mode ipvs exits at start", Source: "KEP-5495", Planned: true}}}
	return fleet
}

func sampleClusterFindings() []*offrampv1.Finding {
	return []*offrampv1.Finding{
		{Id: "mode-not-explicit", Severity: offrampv1.Severity_SEVERITY_WARNING, Scope: offrampv1.Scope_SCOPE_CLUSTER, Title: "kube-proxy's mode is not written down",
			Evidence: []string{"kube-system/kube-proxy, key config.conf: no mode"}, Remedy: "write mode: iptables into it", Undecided: true},
		{Id: "network-plugin-cannot-follow", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Scope: offrampv1.Scope_SCOPE_CLUSTER, Title: "the network plugin cannot follow",
			Evidence: []string{"calico v3.26.1 (calico-system/calico-node)"}, Remedy: "upgrade calico", Accepted: sampleAcceptances()[0]},
	}
}

func sampleAcceptances() []*offrampv1.Acceptance {
	return []*offrampv1.Acceptance{
		{Id: "a1b2c3", FindingId: "network-plugin-cannot-follow", Reason: "upgrade is under way, ticket 4711", Author: "ada (system:serviceaccount:offramp:offramp-operator)",
			At: ago(time.Hour), Until: ago(-240 * time.Hour)},
		{Id: "d4e5f6", FindingId: "kernel-too-old", Selector: "pool=gpu,team notin (a, b)", Reason: "being replaced", Author: "ben", At: ago(100 * time.Hour), Until: ago(time.Hour)},
	}
}

func sampleSteps() []*offrampv1.Step {
	return []*offrampv1.Step{
		{Id: "pin-mode", Title: "Write the mode that runs now into kube-proxy's configuration",
			Why:      "An empty mode changes its meaning with Kubernetes 1.40; once it is written down, nothing moves before you move it.",
			Commands: []string{"kubectl -n kube-system edit configmap kube-proxy   # mode: iptables"}},
		{Id: "rebuild-images", Title: "Bring these nodes to an image whose kernel and tools can do it", Why: "A node that is switched too early serves nothing.",
			Commands: []string{"kubectl offramp nodes --finding kernel-too-old"}, Nodes: 100, NodeSamples: []string{"worker-1", "worker-2"}},
		{Id: "first-canary", Title: "Switch one node first: worker-12", Why: "It is ready.", Waits: true, Nodes: 1, NodeSamples: []string{"worker-12"},
			Commands: []string{`kubectl -n kube-system patch daemonset kube-proxy -p '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'`, "kubectl offramp node worker-12"}},
	}
}

func sampleChanges() *offrampv1.ListChangesResponse {
	return &offrampv1.ListChangesResponse{Changes: []*offrampv1.Change{
		{At: ago(time.Minute), Node: "worker-1", Kind: "clean-up", What: "129 artefacts removed, plan 1f3a"},
		{At: ago(time.Hour), Node: "worker-1", Kind: "mode", What: "ipvs -> iptables"}},
		Incomplete: 7, IncompleteSamples: []string{"worker-2", "worker-3"}}
}

func sampleService() *offrampv1.ClusterService {
	return &offrampv1.ClusterService{Namespace: "default", Name: "web", Type: "NodePort", ClusterIps: []string{"10.96.7.7", "fd00:10:96::7"}, SessionAffinity: true,
		Ports: []*offrampv1.ClusterServicePort{{Protocol: "TCP", Port: 80, NodePort: 30080}, {Protocol: "UDP", Port: 53}}}
}

// sampleAnswers are of a node on ipvs, one on nftables, one that broke off and one that said nothing.
func sampleAnswers() []*offrampv1.NodeService {
	ipvs := offrampv1.ProxyMode_PROXY_MODE_IPVS
	server := func(address, pod string, active uint64) *offrampv1.ServiceEntry {
		return &offrampv1.ServiceEntry{Kind: "real server", Text: "  -> " + address + " Masq weight 1, 3 active and 1 inactive connections",
			Names: []string{"10.244.1.7 is pod default/" + pod}, ActiveConnections: active, InactiveConnections: 1, Mode: ipvs}
	}
	virtual := &offrampv1.ServiceEntry{Kind: "virtual server", Text: "ipvs TCP 10.96.7.7:80 lc", Mode: ipvs}
	return []*offrampv1.NodeService{
		{Node: "worker-2", RunningMode: ipvs, Entries: []*offrampv1.ServiceEntry{virtual, server("10.244.1.7:8080", "web-1", 40), server("10.244.2.9:8080", "web-2", 0)}},
		{Node: "worker-1", RunningMode: ipvs, Entries: []*offrampv1.ServiceEntry{virtual, server("10.244.1.7:8080", "web-1", 3)}, Error: "more than 2000 entries"},
		{Node: "worker-3", RunningMode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES, Entries: []*offrampv1.ServiceEntry{
			{Kind: "nftables entry", Text: "ip kube-proxy service-ips: 10.96.7.7 . tcp . 80 : goto service-ABCD-default/web/tcp/http", Mode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES}}},
		{Node: "worker-4", Error: "the node is not connected"},
		{Node: "worker-5", RunningMode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES},
	}
}
