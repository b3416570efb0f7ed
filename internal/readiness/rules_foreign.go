package readiness

import (
	"fmt"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func foreignRules() []Rule {
	return []Rule{
		{
			ID:       "foreign-virtual-servers",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Somebody else uses IPVS on this node",
			Severity: "blocker for nftables and ipvs; warning once that mode runs; info for iptables and none",
			Meaning:  "keepalived, LVS set-ups, kube-vip and others keep virtual servers in the same table. Every start of kube-proxy in nftables mode empties it; ipvs mode deletes what it did not make.",
			Remedy: "Move them off the node, or choose iptables mode, whose start leaves them. Where they must stay: take the volume /lib/modules out of " +
				"kube-proxy's pods before the switch. The cleaner gives up where modprobe fails, so that kube-proxy empties nothing, and cleans none of ipvs " +
				"mode's leftovers either: offramp-agent cleanup does, and leaves what is foreign. A line in /etc/modprobe.d (install, blacklist) does not help, " +
				"since ip_vs is loaded already. Or save them with `ipvsadm -Sn >FILE` and put them back with `ipvsadm -R <FILE` once kube-proxy runs: " +
				"they stay until its next start, which takes them away again.",
			Source: "kubernetes pkg/proxy/ipvs/cleanup.go (1.34 to 1.37): every start in nftables mode flushes the whole IPVS table, unless modprobe ip_vs fails; " +
				"proxier.go: ipvs mode deletes what it does not want outside ipvs.excludeCIDRs; each remedy was tried with kube-proxy 1.37.2 on kernel 6.1 (e2e/readiness)",
			ReadyOnly: true,
			check:     checkForeignServers,
		},
		{
			ID:       "foreign-references",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Somebody else's rules jump into kube-proxy's chains",
			Severity: "warning",
			Meaning:  "When the mode changes the chain goes, or stays and is empty: host ports silently lose their masquerading, and new pods with host ports may not start.",
			Remedy:   "Change whoever makes the jump before the mode changes: remove externalSetMarkChain from the CNI configuration.",
			Source:   "CNI portmap with externalSetMarkChain, old cri-o: the chain goes away or gets empty when the mode changes",
			check:    checkForeignReferences,
		},
	}
}

func checkForeignServers(n *node, target offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_IPVS) {
		return unread()
	}
	evidence := evidenceOf(keep(n.held, func(h holding) bool {
		return h.what == virtualServers && h.owner.IsForeign()
	}))
	if len(evidence) == 0 {
		return quietly()
	}
	for _, server := range n.ipvs().GetSamples() {
		if kubeproxy.Owner(server.GetOwner()).IsForeign() {
			evidence = append(evidence, serverEvidence(server))
		}
	}
	return foreignServersFor(target, n.running(), evidence)
}

// foreignServersFor weighs them: whether getting to the target destroys them, staying there may, or neither.
func foreignServersFor(target offrampv1.Target, running offrampv1.ProxyMode, evidence []string) outcome {
	destroys := target == offrampv1.Target_TARGET_NFTABLES || target == offrampv1.Target_TARGET_IPVS
	switch {
	case !destroys:
		return inform("", evidence...)
	case running == targetMode(target):
		return warn("Expect them to be gone after the next restart of kube-proxy, and have their owner put them back; in nftables mode they stay "+
			"where its pods have no /lib/modules.", evidence...)
	case target == offrampv1.Target_TARGET_IPVS:
		return block("Move them off this node, or have their owner put them back after each start of kube-proxy, or choose iptables "+
			"mode, whose start leaves them.", evidence...)
	default:
		return block("Move them off this node, or choose iptables mode, whose start leaves them, or take /lib/modules out of kube-proxy's pods "+
			"before the switch, so that it leaves them (kubectl offramp explain foreign-virtual-servers).", evidence...)
	}
}

func isOurs(owner string) bool {
	return kubeproxy.Owner(owner).IsKubeProxy() || kubeproxy.Owner(owner) == kubeproxy.OwnerUnknown
}

func serverEvidence(server *offrampv1.VirtualServer) string {
	if server.GetProtocol() == "FWM" {
		return fmt.Sprintf("FWM %d, scheduler %s, %s", server.GetFwmark(), server.GetScheduler(), server.GetOwner())
	}
	return fmt.Sprintf("%s %s port %d, scheduler %s, %s", server.GetProtocol(), server.GetAddress(), server.GetPort(),
		server.GetScheduler(), server.GetOwner())
}

func checkForeignReferences(n *node, _ offrampv1.Target) outcome {
	var evidence []string
	for _, part := range backends() {
		for _, reference := range n.iptables(part.kind).GetForeignReferences() {
			evidence = append(evidence, fmt.Sprintf("%s: %s %s jumps to %s", part.name, reference.GetTable(),
				reference.GetFromChain(), reference.GetToChain()))
		}
		if count := n.iptables(part.kind).GetForeignReferenceCount(); count > 0 && len(evidence) == 0 {
			evidence = append(evidence, fmt.Sprintf("%s: %d jumps", part.name, count))
		}
	}
	switch {
	case len(evidence) > 0:
		return warn("Change whoever makes them (remove externalSetMarkChain from the CNI configuration) before the mode changes.",
			evidence...)
	case !n.read(iptablesKinds()...):
		return unread()
	default:
		return quietly()
	}
}
