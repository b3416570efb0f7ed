package readiness

import (
	"fmt"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const leftoverSource = "kubernetes pkg/proxy/*/cleanup.go and cmd/kube-proxy/app/server_linux.go platformCleanup: a change between " +
	"ipvs and iptables mode cleans nothing, one to nftables mode leaves every KUBE-6- set"

const leftoverMeaning = "What ipvs mode leaves still takes traffic to endpoints of the past, makes Service addresses the node's own, and filters " +
	"by sets that nobody keeps up to date; iptables mode's rules do the like under ipvs mode."

const leftoverRemedy = "Clean the node: offramp-agent cleanup plan --target MODE, on it and with the mode that runs there, prints exactly what " +
	"would go; cleanup apply removes that and nothing else. Or drain and reboot the node. Do not rely on kube-proxy --cleanup: it leaves every KUBE-6- " +
	"set, deletes everybody's virtual servers, and on a node with the chains of two modes does half of the work."

func leftoverRules() []Rule {
	return []Rule{
		leftoverRule("leftover-virtual-servers", "Virtual servers of a former mode are left", virtualServersLeft,
			offrampv1.SectionKind_SECTION_KIND_IPVS),
		leftoverRule("leftover-ipvs-link", "The link kube-ipvs0 is left, and its addresses are the node's own", linkLeft,
			offrampv1.SectionKind_SECTION_KIND_IPVS_LINK),
		leftoverRule("leftover-ipsets", "Ipsets of a former mode are left", ipsetsLeft,
			offrampv1.SectionKind_SECTION_KIND_IPSETS),
		leftoverRule("leftover-chains", "iptables chains or jumps of a former mode are left", chainsLeft, iptablesKinds()...),
		leftoverRule("leftover-tables", "nftables tables of a former mode are left", tablesLeft,
			offrampv1.SectionKind_SECTION_KIND_NFTABLES),
		{
			ID:       "ipvs-sysctls-left",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Kernel parameters still have the values that ipvs mode sets",
			Severity: "info",
			Meaning:  "kube-proxy never puts them back. arp_ignore and arp_announce of strictARP break network plugins with unnumbered links; others may want the same values.",
			Remedy:   "Reset them where nothing else wants them: offramp-agent cleanup apply --reset-sysctls, or by hand.",
			Source:   "kubernetes pkg/proxy/ipvs/proxier.go NewProxier: set at start, never put back; others may have set them too",
			check:    checkSysctls,
		},
	}
}

// leftoverRule is the rule for one class: evidence says what is left, nothing when nothing is.
func leftoverRule(
	id, title string, evidence func(*offrampv1.Leftovers) []string, kinds ...offrampv1.SectionKind,
) Rule {
	return Rule{
		ID: id, Scope: offrampv1.Scope_SCOPE_NODE, Title: title, Source: leftoverSource, Severity: "warning",
		Meaning: leftoverMeaning, Remedy: leftoverRemedy,
		check: func(n *node, _ offrampv1.Target) outcome {
			if left := evidence(n.left); len(left) > 0 {
				return warn("", left...)
			}
			if n.running() == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN || !n.read(kinds...) {
				return unread()
			}
			return quietly()
		},
	}
}

func virtualServersLeft(left *offrampv1.Leftovers) []string {
	return counted("virtual servers", left.GetVirtualServers())
}

func linkLeft(left *offrampv1.Leftovers) []string {
	if left.GetLinks() == 0 {
		return nil
	}
	return []string{fmt.Sprintf("link %s with %d addresses", kubeproxy.IPVSLink, left.GetLinkAddresses())}
}

func ipsetsLeft(left *offrampv1.Leftovers) []string {
	if left.GetIpsets() == 0 {
		return nil
	}
	return []string{fmt.Sprintf("ipsets: %d with %d entries", left.GetIpsets(), left.GetIpsetEntries())}
}

func chainsLeft(left *offrampv1.Leftovers) []string {
	return append(counted("chains", left.GetChains()), counted("jumps to them", left.GetJumps())...)
}

func tablesLeft(left *offrampv1.Leftovers) []string {
	return counted("nftables tables", left.GetTables())
}

func counted(what string, count uint64) []string {
	if count == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d", what, count)}
}

// checkSysctls never counts as a leftover: nobody can know what the values were before, or who else wants them.
func checkSysctls(n *node, _ offrampv1.Target) outcome {
	running := n.running()
	unknown := running == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	if unknown || !n.read(offrampv1.SectionKind_SECTION_KIND_SYSCTLS) {
		return unread()
	}
	if running == offrampv1.ProxyMode_PROXY_MODE_IPVS {
		return quietly()
	}
	var evidence []string
	for _, sysctl := range kubeproxy.IPVSSysctls(n.kernel().GetMajor(), n.kernel().GetMinor()) {
		if (sysctl.Trace || sysctl.StrictARP) && n.sysctl(sysctl.Path) == sysctl.Value {
			evidence = append(evidence, sysctl.Path+" = "+sysctl.Value)
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return inform("Reset them by hand where nothing else on the node wants them (MetalLB, kube-vip, keepalived, /etc/sysctl.d).",
		evidence...)
}
