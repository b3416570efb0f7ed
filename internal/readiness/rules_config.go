package readiness

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// configuration is what kube-proxy is asked to do, wherever that is said: by a node's own process and files, or by an object
// of the cluster.
type configuration struct {
	source   string
	mode     offrampv1.ProxyMode
	origin   offrampv1.ModeOrigin
	settings *offrampv1.KubeProxySettings
}

const ipvsConfigured = "ipvs-configured"

// configRules judge configurations; each is asked of every node's own, and of the cluster's objects.
func configRules() []Rule {
	return []Rule{
		configRule(Rule{
			ID:       "mode-not-explicit",
			Title:    "kube-proxy's configuration names no mode",
			Severity: "warning",
			Meaning:  "An empty mode is iptables up to Kubernetes 1.39 and becomes nftables with 1.40: the upgrade would change the mode of these nodes, and where the kernel is older than 5.13 kube-proxy would not start any more.",
			Remedy:   "Write the mode that you want into the configuration, for example `mode: iptables`, and restart kube-proxy, before any upgrade to 1.40.",
			Source:   "KEP-5343; kubernetes 1.37 cmd/kube-proxy/app/server_linux.go, event KubeProxyDefaultMode",
		}, configModeImplicit),
		configRule(Rule{
			ID:       ipvsConfigured,
			Title:    "ipvs mode is configured",
			Severity: "warning",
			Meaning:  "Deprecated since 1.35; from 1.40 on kube-proxy refuses to start with it, unless the feature gate KubeProxyIPVS is set; the code is gone in 1.43.",
			Remedy:   "Change the mode in kube-proxy's configuration and restart it, node by node.",
			Source:   "KEP-5495",
		}, configIPVS),
		configRule(Rule{
			ID:       "ipvs-gate-set",
			Title:    "The feature gate KubeProxyIPVS is set",
			Severity: "warning",
			Meaning:  "Set to true it keeps ipvs mode until 1.42 and no longer; 1.46 refuses to start with an unknown gate. Set to false kube-proxy refuses ipvs mode today.",
			Remedy:   "Take the gate out of the configuration once no node runs ipvs mode.",
			Source:   "KEP-5495; kubernetes pkg/features/kube_features.go",
		}, configGate),
		configRule(Rule{
			ID:       "dead-ipvs-settings",
			Title:    "The configuration still has settings of ipvs mode",
			Severity: "info",
			Meaning:  "They do nothing in the mode that is configured, and mislead the next reader. strictARP taken away does not put the kernel parameters back.",
			Remedy:   "Delete the ipvs block (excludeCIDRs, scheduler, strictARP) from the configuration, once no node is to go back.",
			Source:   "kubernetes k8s.io/kube-proxy/config/v1alpha1/types.go",
		}, configDead),
		configRule(Rule{
			ID:        "settings-nftables-ignores",
			Title:     "nftables mode will not read settings that are in use",
			Severity:  "warning for nftables",
			Meaning:   "iptables.masqueradeAll and iptables.masqueradeBit count for iptables and ipvs mode; nftables mode reads nftables.masqueradeAll and nftables.masqueradeBit alone.",
			Remedy:    "Copy the values to the nftables block of the configuration.",
			Source:    "kubernetes pkg/proxy/apis/config/v1alpha1/conversion.go",
			ReadyOnly: true,
		}, configIgnored),
		configRule(Rule{
			ID:        "node-port-addresses-implicit",
			Title:     "nodePortAddresses is not set, or covers one family only",
			Severity:  "warning when a family is missing; info when the list is empty",
			Meaning:   "Empty means every address in ipvs and iptables mode and the primary one in nftables mode. A list without a network of one family means every address of that family.",
			Remedy:    "Set nodePortAddresses to what clients use, for both families: [\"primary\"], or the networks.",
			Source:    "kubernetes pkg/proxy/util/nodeport_addresses.go and cmd/kube-proxy/app/server_linux.go platformApplyDefaults",
			ReadyOnly: true,
		}, configNodePorts),
		configRule(Rule{
			ID:        "scheduler-without-successor",
			Title:     "A scheduler other than rr is in use, and no other mode has one",
			Severity:  "info",
			Meaning:   "iptables and nftables mode choose at random. Least-connection schedulers never balanced globally: every node counts its own connections only (kubectl offramp service shows that).",
			Remedy:    "For stickiness use sessionAffinity: ClientIP; for nearness internalTrafficPolicy: Local or trafficDistribution; otherwise nothing is lost.",
			Source:    "KEP-5495; kubernetes/kubernetes 118784",
			ReadyOnly: true,
		}, configScheduler),
		{
			ID:        "localhost-node-ports",
			Scope:     offrampv1.Scope_SCOPE_NODE,
			Title:     "Something uses node ports on 127.0.0.1",
			Severity:  "warning for nftables, from iptables mode",
			Meaning:   "iptables mode answers there, nftables mode does not by default; ipvs mode never did, so that leaving it loses nothing.",
			Remedy:    "Let the client (a registry mirror, a build) use the node's address; or set nodePortAddresses with localhost and the feature gate KubeProxyNFTablesLocalhostNodePorts.",
			Source:    "KEP-6032; metric kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
			ReadyOnly: true,
			check:     checkLocalhost,
		},
	}
}

// configRule is a rule that is asked of a configuration, of a node's own as well as of the cluster's.
func configRule(rule Rule, check func(configuration, offrampv1.Target) outcome) Rule {
	rule.Scope = offrampv1.Scope_SCOPE_NODE
	rule.check = func(n *node, target offrampv1.Target) outcome {
		if !n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) {
			return unread()
		}
		if n.running() == offrampv1.ProxyMode_PROXY_MODE_NONE {
			return quietly()
		}
		// Where ipvs mode is configured and runs, on-ipvs says so.
		if rule.ID == ipvsConfigured && n.running() == offrampv1.ProxyMode_PROXY_MODE_IPVS {
			return quietly()
		}
		return check(n.configuration(), target)
	}
	rule.checkCluster = func(c *cluster, target offrampv1.Target) outcome {
		if !c.read("configmaps") {
			return unread()
		}
		worst := quietly()
		for _, one := range c.configurations() {
			worst = worst.and(check(one, target))
		}
		return worst
	}
	return rule
}

// configuration is what a node's own kube-proxy is asked to do.
func (n *node) configuration() configuration {
	proxy := n.kubeProxy()
	return configuration{
		source: orElse(proxy.GetConfiguredModeSource(), "this node"), mode: known(proxy.GetConfiguredMode()),
		origin: proxy.GetConfiguredModeOrigin(), settings: proxy.GetSettings(),
	}
}

func configModeImplicit(c configuration, _ offrampv1.Target) outcome {
	if c.origin != offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED {
		return quietly()
	}
	return warn("", c.source+" names no mode")
}

func configIPVS(c configuration, target offrampv1.Target) outcome {
	if c.mode != offrampv1.ProxyMode_PROXY_MODE_IPVS || target == offrampv1.Target_TARGET_IPVS {
		return quietly()
	}
	return warn("", c.source+" asks for ipvs mode")
}

func configGate(c configuration, _ offrampv1.Target) outcome {
	for _, gate := range c.settings.GetFeatureGates() {
		if strings.HasPrefix(gate, "KubeProxyIPVS=") {
			return warn("", c.source+": "+gate)
		}
	}
	return quietly()
}

func configDead(c configuration, _ offrampv1.Target) outcome {
	other := c.mode != offrampv1.ProxyMode_PROXY_MODE_IPVS && c.mode != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	if !other {
		return quietly()
	}
	var evidence []string
	if scheduler := c.settings.GetIpvsScheduler(); scheduler != "" {
		evidence = append(evidence, c.source+": ipvs.scheduler is "+scheduler)
	}
	if c.settings.GetIpvsStrictArp() {
		evidence = append(evidence, c.source+": ipvs.strictARP is true")
	}
	if cidrs := c.settings.GetIpvsExcludeCidrs(); len(cidrs) > 0 {
		evidence = append(evidence, c.source+": ipvs.excludeCIDRs is "+strings.Join(cidrs, " "))
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return inform("", evidence...)
}

// defaultMasqueradeBit is that of every mode.
const defaultMasqueradeBit = 14

func configIgnored(c configuration, target offrampv1.Target) outcome {
	moves := target == offrampv1.Target_TARGET_NFTABLES && c.mode != offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	if !moves || c.settings == nil {
		return quietly()
	}
	var evidence []string
	if c.settings.GetIptablesMasqueradeAll() && !c.settings.GetNftablesMasqueradeAll() {
		evidence = append(evidence, c.source+": iptables.masqueradeAll is true, nftables.masqueradeAll is false")
	}
	bit, next := masqueradeBit(c.settings.GetIptablesMasqueradeBit()), masqueradeBit(c.settings.GetNftablesMasqueradeBit())
	if bit != next {
		evidence = append(evidence, fmt.Sprintf("%s: iptables.masqueradeBit is %d, nftables.masqueradeBit %d", c.source, bit, next))
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return warn("", evidence...)
}

func masqueradeBit(set int32) int32 {
	if set < 0 {
		return defaultMasqueradeBit
	}
	return set
}

func configNodePorts(c configuration, target offrampv1.Target) outcome {
	moves := target == offrampv1.Target_TARGET_NFTABLES && c.mode != offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	if !moves || c.settings == nil {
		return quietly()
	}
	addresses := c.settings.GetNodePortAddresses()
	if len(addresses) == 0 {
		return inform("", c.source+": nodePortAddresses is empty")
	}
	if missing := missingFamily(addresses, c.settings.GetClusterCidrs()); missing != "" {
		return warn("", fmt.Sprintf("%s: nodePortAddresses %s has no network of %s", c.source, strings.Join(addresses, " "), missing))
	}
	return quietly()
}

// missingFamily names the family that the cluster has and the list of networks has not; "" when there is none. Keywords
// ("primary", "localhost", "all") stand for both families.
func missingFamily(addresses, clusterCIDRs []string) string {
	if slices.ContainsFunc(addresses, func(address string) bool { return !strings.Contains(address, "/") }) {
		return ""
	}
	listed, wanted := familiesOf(addresses), familiesOf(clusterCIDRs)
	switch {
	case wanted.ipv4 && !listed.ipv4:
		return "IPv4"
	case wanted.ipv6 && !listed.ipv6:
		return "IPv6"
	default:
		return ""
	}
}

type families struct{ ipv4, ipv6 bool }

func familiesOf(networks []string) families {
	var found families
	for _, network := range networks {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			continue
		}
		found.ipv4 = found.ipv4 || prefix.Addr().Is4()
		found.ipv6 = found.ipv6 || prefix.Addr().Is6()
	}
	return found
}

func configScheduler(c configuration, target offrampv1.Target) outcome {
	scheduler := c.settings.GetIpvsScheduler()
	leaves := c.mode == offrampv1.ProxyMode_PROXY_MODE_IPVS && target != offrampv1.Target_TARGET_IPVS
	if !leaves || scheduler == "" || scheduler == "rr" {
		return quietly()
	}
	return inform("", c.source+": ipvs.scheduler is "+scheduler)
}

func checkLocalhost(n *node, target offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) {
		return unread()
	}
	packets := n.kubeProxyNow().GetLocalhostNodeportPackets()
	loses := n.running() == offrampv1.ProxyMode_PROXY_MODE_IPTABLES && target == offrampv1.Target_TARGET_NFTABLES
	if packets == 0 || !loses {
		return quietly()
	}
	return warn("", fmt.Sprintf("%d packets accepted since kube-proxy started", packets))
}
