package readiness

import (
	"fmt"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func hostRules() []Rule {
	return []Rule{
		{
			ID:        "kernel-feature-missing",
			Scope:     offrampv1.Scope_SCOPE_NODE,
			Title:     "The kernel lacks what the target mode needs",
			Severity:  "blocker for nftables and iptables; warning when that mode runs all the same; info when the modules are not in sight",
			Meaning:   "kube-proxy's first sync would fail for good: it logs an error, its health stays green, and no Service works.",
			Remedy:    "Install the package with the missing modules (kernel-modules-extra on Enterprise Linux), or take them off the block list, or choose the other target.",
			Source:    "modules loaded on 6.1 by kube-proxy 1.37 in each mode; kubernetes/kops 17915: Enterprise Linux 10 kernels without xtables modules",
			ReadyOnly: true,
			check:     checkFeatures,
		},
		{
			ID:        "nft-version-clash",
			Scope:     offrampv1.Scope_SCOPE_NODE,
			Title:     "A table on this node was made by a newer nft than kube-proxy's image may have",
			Severity:  "warning for nftables",
			Meaning:   "nft 1.1.0 and older may crash while it lists sets that a newer one made; kube-proxy then never syncs in nftables mode.",
			Remedy:    "Run a kube-proxy image whose nft is as new as the host's, or have the owner of the table make it with an older nft.",
			Source:    "kubernetes/kubernetes 136786 and 140898",
			ReadyOnly: true,
			check:     checkNewerNft,
		},
		{
			ID:       "host-firewall-drops",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "A firewall of the host drops by default what nftables mode does not accept for it",
			Severity: "warning for nftables",
			Meaning:  "ipvs and iptables mode accept forwarded Service traffic and health-check node ports ahead of a later drop. In nftables an accept ends one base chain only: node ports, masqueraded traffic and load balancers' health checks are dropped.",
			Remedy:   "Allow node ports, health-check node ports and forwarded pod traffic in the host's own firewall before the switch.",
			Source:   "KEP-3866; kubernetes pkg/proxy/nftables: no rule accepts for other people's chains",
			check:    checkFirewall,
		},
		{
			ID:       "boot-file-names-objects",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Files that are applied at boot name objects of kube-proxy's",
			Severity: "warning for saved rules and sets; info for modules and kernel parameters",
			Meaning:  "They bring leftovers back at the next boot. A saved rule that matches a set which is gone makes the whole file fail, the host's own firewall with it.",
			Remedy:   "Take kube-proxy's lines out of the files named, then clean up.",
			Source:   "seen: iptables-restore refuses a file that names a set which does not exist, exit code 2; k3s-io/k3s 7261",
			check:    checkBootFiles,
		},
		{
			ID:       "conntrack-nearly-full",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "The connection tracking table is nearly full",
			Severity: "warning",
			Meaning:  "iptables and nftables mode track every Service connection; a full table drops new ones.",
			Remedy:   "Raise conntrack.maxPerCore in kube-proxy's configuration, or net.netfilter.nf_conntrack_max, before the switch.",
			Source:   "net.netfilter.nf_conntrack_count against nf_conntrack_max",
			check:    checkConntrack,
		},
		{
			ID:       "node-ports-in-ephemeral-range",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "The node's own connections may take ports of the node port range",
			Severity: "info",
			Meaning:  "A local connection that got a port of 30000-32767 clashes with a node port of the same number.",
			Remedy:   "Set net.ipv4.ip_local_port_range outside of 30000-32767, or reserve that range in net.ipv4.ip_local_reserved_ports.",
			Source:   "kubernetes/kubernetes 139276; the default of --service-node-port-range",
			check:    checkEphemeralPorts,
		},
		{
			ID:       "node-local-dns",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "NodeLocal DNSCache runs here, and it is laid out differently for ipvs mode",
			Severity: "info",
			Meaning:  "Under ipvs mode it cannot take over the address of kube-dns, so kubelet points pods at its link-local address. Both layouts work after the move; changing it is a decision of its own.",
			Remedy:   "Leave kubelet's clusterDNS as it is for the move; render NodeLocal DNSCache anew afterwards, if you want the other layout.",
			Source:   "kubernetes/dns 682; NodeLocal DNSCache documents",
			check:    checkNodeLocalDNS,
		},
		{
			ID:       "both-iptables-backends",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Rules are in both backends of iptables",
			Severity: "warning when kube-proxy's chains are in both; info otherwise",
			Meaning:  "Both are in force at once. Chains of kube-proxy's in the backend it does not use any more go on sending traffic to dead pods.",
			Remedy:   "Find out which backend the host uses (iptables --version) and clean the other; offramp-agent cleanup looks at both.",
			Source:   "kubernetes/kubernetes 109811; kubernetes-sigs/iptables-wrappers",
			check:    checkBothBackends,
		},
	}
}

func (n *node) host() *offrampv1.HostFacts {
	return n.stable[offrampv1.SectionKind_SECTION_KIND_HOST].GetHost()
}

func (n *node) hostRead() bool { return n.read(offrampv1.SectionKind_SECTION_KIND_HOST) }

// checkFeatures does not leave the question open where /lib/modules is not in sight: kernels of the right version nearly
// always have them, and most of them are loaded only when they are used.
func checkFeatures(n *node, target offrampv1.Target) outcome {
	if !n.hostRead() {
		return unread()
	}
	var missing, open []string
	for _, feature := range n.host().GetFeatures() {
		if !needs(feature, targetMode(target)) {
			continue
		}
		switch feature.GetState() {
		case offrampv1.FeatureState_FEATURE_STATE_MISSING:
			missing = append(missing, "missing: "+feature.GetName())
		case offrampv1.FeatureState_FEATURE_STATE_UNKNOWN, offrampv1.FeatureState_FEATURE_STATE_UNSPECIFIED:
			open = append(open, feature.GetName())
		}
	}
	switch {
	case len(missing) > 0 && n.running() == targetMode(target):
		return warn("", append(missing, "it runs all the same")...)
	case len(missing) > 0:
		return block("", missing...)
	case len(open) > 0 && n.running() != targetMode(target):
		return inform("Let the agent see /lib/modules of the host, so that it can tell.", "could not be told: "+strings.Join(open, " "))
	default:
		return quietly()
	}
}

func needs(feature *offrampv1.KernelFeature, mode offrampv1.ProxyMode) bool {
	for _, needed := range feature.GetNeededBy() {
		if needed == mode {
			return true
		}
	}
	return false
}

func checkNewerNft(n *node, target offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_NFTABLES) {
		return unread()
	}
	var evidence []string
	for _, table := range n.nftables().GetSamples() {
		if !kubeproxy.Owner(table.GetOwner()).IsKubeProxy() && len(table.GetNewerFeatures()) > 0 {
			evidence = append(evidence, fmt.Sprintf("table %s %s: %s", table.GetFamily(), table.GetName(),
				strings.Join(table.GetNewerFeatures(), ", ")))
		}
	}
	if len(evidence) == 0 || target != offrampv1.Target_TARGET_NFTABLES {
		return quietly()
	}
	return warn("", evidence...)
}

func checkFirewall(n *node, target offrampv1.Target) outcome {
	if target != offrampv1.Target_TARGET_NFTABLES {
		return quietly()
	}
	var evidence []string
	for _, part := range backends() {
		for _, chain := range n.iptables(part.kind).GetDropPolicies() {
			if chain == "filter INPUT" || chain == "filter FORWARD" {
				evidence = append(evidence, part.name+": policy of "+chain+" is DROP")
			}
		}
	}
	for _, chain := range n.nftables().GetDropChains() {
		evidence = append(evidence, "nftables: policy of "+chain+" is drop")
	}
	for _, program := range n.host().GetProgramsSeen() {
		if program == "firewalld" || program == "ufw" {
			evidence = append(evidence, program+" runs")
		}
	}
	switch {
	case len(evidence) > 0:
		return warn("", evidence...)
	case !n.read(append(iptablesKinds(), offrampv1.SectionKind_SECTION_KIND_NFTABLES, offrampv1.SectionKind_SECTION_KIND_HOST)...):
		return unread()
	default:
		return quietly()
	}
}

func checkBootFiles(n *node, _ offrampv1.Target) outcome {
	if !n.hostRead() {
		return unread()
	}
	var rules, aside []string
	for _, file := range n.host().GetFiles() {
		line := file.GetPath() + " (" + file.GetKind() + "): " + strings.Join(file.GetNames(), " ")
		switch {
		case file.GetKind() == "cni configuration":
		case file.GetKind() == "iptables rules", file.GetKind() == "ipset sets", file.GetKind() == "nftables ruleset":
			rules = append(rules, line)
		default:
			aside = append(aside, line)
		}
	}
	switch {
	case len(rules) > 0:
		return warn("", append(rules, aside...)...)
	case len(aside) > 0:
		return inform("Delete these files when no node of this image runs ipvs mode any more.", aside...)
	default:
		return quietly()
	}
}

// conntrackAlarm is the share of the table from which on it is nearly full, in percent.
const conntrackAlarm = 80

func checkConntrack(n *node, _ offrampv1.Target) outcome {
	if !n.hostRead() {
		return unread()
	}
	count := n.volatile[offrampv1.SectionKind_SECTION_KIND_HOST].GetHost().GetConntrackCount()
	if limit := n.host().GetConntrackMax(); limit > 0 && count*100 >= limit*conntrackAlarm {
		return warn("", fmt.Sprintf("%d of %d entries", count, limit))
	}
	return quietly()
}

// The default of kube-apiserver's --service-node-port-range.
const firstNodePort, lastNodePort = 30000, 32767

func checkEphemeralPorts(n *node, _ offrampv1.Target) outcome {
	if !n.hostRead() {
		return unread()
	}
	host := n.host()
	overlap := host.GetLocalPortMin() <= lastNodePort && host.GetLocalPortMax() >= firstNodePort && host.GetLocalPortMax() > 0
	if !overlap || strings.Contains(host.GetReservedPorts(), fmt.Sprintf("%d-%d", firstNodePort, lastNodePort)) {
		return quietly()
	}
	// The kernel's own default range, 32768-60999, does not overlap: somebody set this one.
	return inform("", fmt.Sprintf("net.ipv4.ip_local_port_range is %d-%d, reserved: %q", host.GetLocalPortMin(), host.GetLocalPortMax(),
		host.GetReservedPorts()))
}

func checkNodeLocalDNS(n *node, target offrampv1.Target) outcome {
	if !n.hostRead() {
		return unread()
	}
	leaves := n.running() == offrampv1.ProxyMode_PROXY_MODE_IPVS && target != offrampv1.Target_TARGET_IPVS
	for _, program := range n.host().GetProgramsSeen() {
		if program == "nodelocaldns" && leaves {
			return inform("", "seen: "+program)
		}
	}
	return quietly()
}

func checkBothBackends(n *node, _ offrampv1.Target) outcome {
	var both, ours []string
	for _, part := range backends()[:2] {
		nft, legacy := n.iptables(part.kind), n.iptables(part.other)
		if rulesOf(nft) == 0 || rulesOf(legacy) == 0 {
			continue
		}
		line := fmt.Sprintf("%s: %d rules in the nft backend, %d in the legacy one", familyName(part.family), rulesOf(nft), rulesOf(legacy))
		if hasKubeProxys(nft) && hasKubeProxys(legacy) {
			ours = append(ours, line+"; kube-proxy's chains are in both")
			continue
		}
		both = append(both, line)
	}
	switch {
	case len(ours) > 0:
		return warn("", append(ours, both...)...)
	case len(both) > 0:
		return inform("", both...)
	case !n.read(iptablesKinds()...):
		return unread()
	default:
		return quietly()
	}
}

func rulesOf(facts *offrampv1.IptablesFacts) uint64 {
	sum := uint64(0)
	for _, table := range facts.GetTables() {
		sum += table.GetRules()
	}
	return sum
}

func hasKubeProxys(facts *offrampv1.IptablesFacts) bool {
	for _, count := range facts.GetOwners() {
		if kubeproxy.Owner(count.GetOwner()).IsKubeProxy() && count.GetChains() > 0 {
			return true
		}
	}
	return false
}
