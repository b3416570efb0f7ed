package readiness

import (
	"fmt"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func trafficRules() []Rule {
	return []Rule{
		{
			ID:        "node-ports-on-other-addresses",
			Scope:     offrampv1.Scope_SCOPE_NODE,
			Title:     "Clients use node ports on other than the node's primary address",
			Severity:  "warning for nftables",
			Meaning:   "ipvs and iptables mode answer on every address of the node. nftables mode answers on the primary one alone, unless nodePortAddresses says otherwise: these clients get no answer after the switch.",
			Remedy:    "Set nodePortAddresses in kube-proxy's configuration to the networks that clients use, or move the clients named to the primary address.",
			Source:    "kubernetes PR 122724 and 123105: nodePortAddresses is `primary` in nftables mode when empty",
			ReadyOnly: true,
			check:     checkNodePortTraffic,
		},
		{
			ID:       "host-ports-exposed",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Daemons of the host can be reached through Service addresses",
			Severity: "warning",
			Meaning:  "The addresses that are left on kube-ipvs0 are the node's own: whoever connects to one of them, on any port, reaches what listens on all addresses, ssh and kubelet among it, and network policies for pods do not apply.",
			Remedy:   "Clean this node up first (offramp-agent cleanup, or kubectl offramp cleanup NODE): the link goes, and with it the exposure.",
			Source:   "kubernetes/kubernetes 72236; seen with nftables mode's own reject of unknown Service addresses in place",
			check:    checkExposed,
		},
		{
			ID:        "api-server-through-ipvs",
			Scope:     offrampv1.Scope_SCOPE_NODE,
			Title:     "The path to the API server may run through an IPVS virtual server that is not kube-proxy's",
			Severity:  "blocker for nftables; warning for another target, and once nftables mode runs",
			Meaning:   "lvscare, sealos, kubekey and kube-vip balance kubelet's connections to the control plane with IPVS. A start of kube-proxy in nftables mode empties the IPVS table: the node loses the API server and becomes NotReady.",
			Remedy:    "Give kubelet and kube-proxy another way to the API server (an external load balancer, a local proxy that is not IPVS) before the switch.",
			Source:    "kubernetes pkg/proxy/ipvs/cleanup.go flushes the table; labring/lvscare 7, kubernetes/kubernetes 76267",
			ReadyOnly: true,
			check:     checkAPIServer,
		},
		{
			ID:        "conntrack-resets",
			Scope:     offrampv1.Scope_SCOPE_NODE,
			Title:     "Kernels before 6.1 may reset connections in nftables mode",
			Severity:  "warning for nftables; info when the setting could not be seen",
			Meaning:   "Packets that connection tracking calls INVALID are dropped by iptables mode; nftables mode lets them through, and the client's kernel answers with a reset.",
			Remedy:    "Set conntrack.tcpBeLiberal: true in kube-proxy's configuration, or run kernel 6.1 or later.",
			Source:    "kubernetes PR 122663 and 120412; kubernetes-sigs/kind PR 3588",
			ReadyOnly: true,
			check:     checkResets,
		},
		{
			ID:       "sync-failures",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "kube-proxy failed to write its rules at least once since it started",
			Severity: "warning",
			Meaning:  "The last sync went well, but some before it did not.",
			Remedy:   "Look into kube-proxy's log for the failed restores and mend their cause before the mode changes.",
			Source:   "kubernetes pkg/proxy/metrics/metrics.go: sync_proxy_rules_*_failures_total",
			check:    checkFailures,
		},
		{
			ID:       "not-rebooted-since-switch",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "The node has not been rebooted since its mode changed, and something is left",
			Severity: "info",
			Meaning:  "A reboot would clear it as well as a clean-up does.",
			Remedy:   "Clean the node up, or drain and reboot it, whichever is easier for you.",
			Source:   "the node's own memory of its mode against the time of its boot",
			check:    checkRebooted,
		},
	}
}

func checkNodePortTraffic(n *node, target offrampv1.Target) outcome {
	running := n.running()
	moves := target == offrampv1.Target_TARGET_NFTABLES && running != offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	if !moves || len(n.kubeProxy().GetSettings().GetNodePortAddresses()) > 0 {
		return quietly()
	}
	if !n.read(offrampv1.SectionKind_SECTION_KIND_IPVS, offrampv1.SectionKind_SECTION_KIND_ADDRESSES) {
		return unread()
	}
	evidence := n.strayNodePorts()
	if len(evidence) == 0 {
		return quietly()
	}
	return warn("", evidence...)
}

// strayNodePorts lists the node ports that got traffic on other than a primary address.
func (n *node) strayNodePorts() []string {
	primary := map[string]bool{}
	for _, address := range n.stable[offrampv1.SectionKind_SECTION_KIND_ADDRESSES].GetAddresses().GetSamples() {
		primary[address.GetAddress()] = address.GetPrimary()
	}
	var evidence []string
	for _, traffic := range n.volatile[offrampv1.SectionKind_SECTION_KIND_IPVS].GetIpvs().GetNodePorts() {
		if primary[traffic.GetAddress()] || (traffic.GetConnections() == 0 && traffic.GetIncomingPackets() == 0) {
			continue
		}
		line := fmt.Sprintf("%s %s port %d: %d connections", traffic.GetProtocol(), traffic.GetAddress(), traffic.GetPort(), traffic.GetConnections())
		if clients := traffic.GetClients(); len(clients) > 0 {
			line += ", now from " + strings.Join(clients, " ")
		}
		evidence = append(evidence, line)
	}
	return evidence
}

func checkExposed(n *node, _ offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_IPVS_LINK) || n.running() == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		return unread()
	}
	link := n.link()
	if n.leftover(link.GetOwner()) != kubeproxy.Yes || len(link.GetWildcardListeners()) == 0 {
		return quietly()
	}
	evidence := []string{fmt.Sprintf("%d addresses on %s", link.GetIpv4Addresses()+link.GetIpv6Addresses(), kubeproxy.IPVSLink)}
	for _, socket := range link.GetWildcardListeners() {
		evidence = append(evidence, "listens: "+socket.GetProtocol()+" "+socket.GetLocal())
	}
	return warn("", evidence...)
}

// checkAPIServer knows such virtual servers by the port of the API server, the only sign that every such program shares.
func checkAPIServer(n *node, target offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_IPVS) {
		return unread()
	}
	var evidence []string
	for _, server := range n.ipvs().GetSamples() {
		ours := kubeproxy.Owner(server.GetOwner()).IsKubeProxy()
		if !ours && server.GetProtocol() == "TCP" && (server.GetPort() == 6443 || server.GetPort() == 8443) {
			evidence = append(evidence, serverEvidence(server))
		}
	}
	switch {
	case len(evidence) == 0:
		return quietly()
	case target == offrampv1.Target_TARGET_NFTABLES && n.running() != offrampv1.ProxyMode_PROXY_MODE_NFTABLES:
		return block("", evidence...)
	default:
		return warn("", evidence...)
	}
}

func checkResets(n *node, target offrampv1.Target) outcome {
	kernel := n.kernel()
	if kernel == nil || !n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) {
		return unread()
	}
	newEnough := kernel.GetMajor() > 6 || (kernel.GetMajor() == 6 && kernel.GetMinor() >= 1)
	if target != offrampv1.Target_TARGET_NFTABLES || kernel.GetMajor() == 0 || newEnough {
		return quietly()
	}
	settings := n.kubeProxy().GetSettings()
	switch {
	case settings == nil:
		return inform("", "kernel "+kernel.GetRelease(), "conntrack.tcpBeLiberal could not be seen")
	case settings.GetConntrackTcpBeLiberal():
		return quietly()
	default:
		return warn("", "kernel "+kernel.GetRelease(), "conntrack.tcpBeLiberal is false ("+settings.GetSource()+")")
	}
}

func checkFailures(n *node, _ offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) {
		return unread()
	}
	var evidence []string
	for _, sync := range n.kubeProxyNow().GetSyncs() {
		if sync.GetFailures() > 0 && syncEvidence(sync) == "" {
			evidence = append(evidence, fmt.Sprintf("%s: %d failures", familyName(sync.GetFamily()), sync.GetFailures()))
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return warn("", evidence...)
}

func checkRebooted(n *node, _ offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_HISTORY, offrampv1.SectionKind_SECTION_KIND_KERNEL) {
		return unread()
	}
	changes := n.history().GetModeChanges()
	booted := n.volatile[offrampv1.SectionKind_SECTION_KIND_KERNEL].GetKernel().GetBootedAt()
	if len(changes) == 0 || booted == nil || !AnyLeft(n.left) {
		return quietly()
	}
	last := changes[len(changes)-1]
	if booted.AsTime().After(last.GetAt().AsTime()) {
		return quietly()
	}
	return inform("", fmt.Sprintf("%s to %s at %s, booted at %s", modeName(last.GetFrom()), modeName(last.GetTo()),
		last.GetAt().AsTime().Format(timeForm), booted.AsTime().Format(timeForm)))
}

const timeForm = "2006-01-02T15:04:05Z"
