package readiness

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func clusterRules() []Rule {
	rules := []Rule{
		{
			ID:           "cluster-unread",
			Title:        "The Kubernetes API, or a part of it, could not be read",
			Severity:     "open, and decides nothing",
			Meaning:      "What is said about the cluster is not complete; what the nodes say of themselves stands.",
			Remedy:       "Give the aggregator read access to what is named (deploy/ has the rules), or judge the configuration by hand.",
			Source:       "what was not read is not known",
			checkCluster: checkClusterUnread,
		},
		{
			ID:           "config-not-in-use",
			Title:        "kube-proxy's configuration was changed after its pods started",
			Severity:     "warning",
			Meaning:      "kube-proxy reads its configuration at start, and a changed ConfigMap restarts no pod: nodes go on in the old mode.",
			Remedy:       "Restart kube-proxy where you want the new mode: kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE",
			Source:       "aws/containers-roadmap 2849; kubernetes cmd/kube-proxy/app/options.go watches the file, not the symlink of a ConfigMap mount",
			checkCluster: checkConfigNotInUse,
		},
		{
			ID:           "config-doubtful",
			Title:        "kube-proxy's configuration has parts that are not understood",
			Severity:     "warning; open when nothing of it could be understood",
			Meaning:      "kube-proxy falls back to lenient decoding: an unknown or duplicate field is ignored, so that a misspelt setting does nothing.",
			Remedy:       "Correct the fields named.",
			Source:       "kubernetes cmd/kube-proxy/app/options.go: `Using lenient decoding as strict decoding failed`",
			checkCluster: checkConfigDoubtful,
		},
		{
			ID:           "network-plugin-cannot-follow",
			Title:        "The network plugin does not work with kube-proxy in nftables mode",
			Severity:     "blocker for nftables; open when the version is not known",
			Meaning:      "Calico before 3.30 writes iptables rules that do not see kube-proxy's nftables rules as it expects; its nftables backend follows kube-proxy from there on.",
			Remedy:       "Upgrade the network plugin first, then switch it and kube-proxy together.",
			Source:       "projectcalico/calico 8025, PR 11629; tigera/operator PR 4389",
			ReadyOnly:    true,
			checkCluster: checkPlugin,
		},
		{
			ID:           "kube-proxy-replaced",
			Title:        "Something replaces kube-proxy in this cluster",
			Severity:     "warning; info for the target none",
			Meaning:      "Where an eBPF data plane serves Services, kube-proxy is not wanted, and what it left must go: the target of these nodes is none.",
			Remedy:       "Ask for --target none; remove kube-proxy's workload if it still runs.",
			Source:       "Cilium kube-proxy-replacement, Calico bpfEnabled, Antrea proxyAll",
			checkCluster: checkReplaced,
		},
		{
			ID:           "version-skew",
			Title:        "kube-proxy's version is not one that goes with the control plane",
			Severity:     "warning",
			Meaning:      "kube-proxy must not be newer than kube-apiserver and at most three minor versions older.",
			Remedy:       "Bring kube-proxy to a supported version before changing its mode.",
			Source:       "Kubernetes version skew policy",
			checkCluster: checkSkew,
		},
		{
			ID:           "address-clash",
			Title:        "An external or load-balancer address of a Service is an address of a node",
			Severity:     "warning",
			Meaning:      "ipvs mode puts the address on kube-ipvs0 of every node, so that no other node reaches the node that owns it.",
			Remedy:       "Give the Service another address.",
			Source:       "kubernetes pkg/proxy/ipvs/proxier.go binds external and load-balancer addresses on every node",
			checkCluster: checkClash,
		},
		{
			ID:           "kube-proxy-warned",
			Title:        "kube-proxy itself has warned about its mode",
			Severity:     "info",
			Meaning:      "Since 1.35 kube-proxy reports an event for ipvs mode, since 1.37 one for an empty mode.",
			Remedy:       "See on-ipvs and mode-not-explicit.",
			Source:       "kubernetes cmd/kube-proxy/app/server_linux.go, events IPVSDeprecation and KubeProxyDefaultMode",
			checkCluster: checkWarned,
		},
	}
	for i := range rules {
		rules[i].Scope = offrampv1.Scope_SCOPE_CLUSTER
	}
	return rules
}

func checkClusterUnread(c *cluster, _ offrampv1.Target) outcome {
	if c.facts == nil {
		return openQuestion("the Kubernetes API was not asked")
	}
	var evidence []string
	for _, source := range c.facts.GetSources() {
		if !c.read(source.GetKind()) {
			evidence = append(evidence, source.GetKind()+": "+orElse(source.GetError(), "not read"))
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return openQuestion(evidence...)
}

// openQuestion leaves something open that does not decide about readiness.
func openQuestion(evidence ...string) outcome {
	return outcome{verdict: cannotTell, severity: offrampv1.Severity_SEVERITY_INFO, evidence: evidence}
}

func checkConfigNotInUse(c *cluster, _ offrampv1.Target) outcome {
	if !c.read("configmaps", "pods") {
		return unread()
	}
	var evidence []string
	for _, workload := range c.facts.GetKubeProxies() {
		for _, config := range c.facts.GetKubeProxyConfigs() {
			started := workload.GetOldestPodStartedAt()
			used := workload.GetConfigMap() == config.GetNamespace()+"/"+config.GetName()
			if used && started != nil && config.GetChangedAt() != nil && config.GetChangedAt().AsTime().After(started.AsTime()) {
				evidence = append(evidence, fmt.Sprintf("ConfigMap %s changed at %s, the oldest pod of %s started at %s", workload.GetConfigMap(),
					config.GetChangedAt().AsTime().Format(timeForm), workloadName(workload), started.AsTime().Format(timeForm)))
			}
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return warn("", evidence...)
}

func checkConfigDoubtful(c *cluster, _ offrampv1.Target) outcome {
	if !c.read("configmaps") {
		return unread()
	}
	var broken, doubtful []string
	for _, config := range c.facts.GetKubeProxyConfigs() {
		name := "ConfigMap " + config.GetNamespace() + "/" + config.GetName()
		switch {
		case config.GetError() != "":
			broken = append(broken, name+": "+config.GetError())
		case len(config.GetUnknownFields()) > 0:
			doubtful = append(doubtful, name+": "+strings.Join(config.GetUnknownFields(), " "))
		case config.GetLenient():
			doubtful = append(doubtful, name+": accepted by lenient decoding only")
		}
	}
	switch {
	case len(broken) > 0:
		return openQuestion(append(broken, doubtful...)...)
	case len(doubtful) > 0:
		return warn("", doubtful...)
	default:
		return quietly()
	}
}

func checkPlugin(c *cluster, target offrampv1.Target) outcome {
	if !c.read("daemonsets") {
		return unread()
	}
	if target != offrampv1.Target_TARGET_NFTABLES {
		return quietly()
	}
	for _, network := range c.facts.GetNetworks() {
		if network.GetName() != "calico" && network.GetName() != "canal" {
			continue
		}
		major, minor, ok := versionOf(network.GetVersion())
		where := network.GetName() + " " + network.GetVersion() + " (" + network.GetSource() + ")"
		switch {
		case !ok:
			return openQuestion(network.GetName() + " of unknown version (" + network.GetSource() + "), 3.30 or later is needed")
		case major < 3 || (major == 3 && minor < 30):
			return block("", where+", 3.30 or later is needed")
		}
	}
	return quietly()
}

// versionOf reads "v3.29.1" or "1.37"; ok is false when it does not begin with two numbers.
func versionOf(text string) (major, minor int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	digits := func(r rune) bool { return r < '0' || r > '9' }
	if end := strings.IndexFunc(parts[1], digits); end > 0 {
		parts[1] = parts[1][:end]
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(parts[1])
	return major, minor, err == nil
}

func checkReplaced(c *cluster, target offrampv1.Target) outcome {
	if !c.read("daemonsets", "configmaps") {
		return unread()
	}
	var evidence []string
	for _, network := range c.facts.GetNetworks() {
		if network.GetReplacesKubeProxy() {
			evidence = append(evidence, strings.Join(append([]string{network.GetName(), network.GetVersion(), network.GetSource()}, network.GetSettings()...), " "))
		}
	}
	switch {
	case len(evidence) == 0:
		return quietly()
	case target == offrampv1.Target_TARGET_NONE:
		return inform("", evidence...)
	default:
		return warn("", evidence...)
	}
}

// maxSkew is how many minor versions kube-proxy may be older than kube-apiserver.
const maxSkew = 3

func checkSkew(c *cluster, _ offrampv1.Target) outcome {
	_, server, ok := versionOf(c.facts.GetServerVersion())
	if !ok || !c.read("daemonsets") {
		return unread()
	}
	var evidence []string
	for _, workload := range c.facts.GetKubeProxies() {
		_, minor, ok := versionOf(workload.GetVersion())
		if ok && (minor > server || minor < server-maxSkew) {
			evidence = append(evidence, fmt.Sprintf("%s is %s, kube-apiserver %s", workloadName(workload), workload.GetVersion(), c.facts.GetServerVersion()))
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return warn("", evidence...)
}

func checkClash(c *cluster, _ offrampv1.Target) outcome {
	if !c.read("services", "nodes") {
		return unread()
	}
	owner := map[netip.Addr]string{}
	for _, node := range c.facts.GetNodes() {
		for _, text := range node.GetAddresses() {
			if address, err := netip.ParseAddr(text); err == nil {
				owner[address] = node.GetName()
			}
		}
	}
	var evidence []string
	for _, service := range c.facts.GetServices() {
		for _, text := range slices.Concat(service.GetExternalIps(), service.GetLoadBalancerIps()) {
			address, err := netip.ParseAddr(text)
			if node := owner[address]; err == nil && node != "" {
				evidence = append(evidence, fmt.Sprintf("%s/%s: %s is node %s", service.GetNamespace(), service.GetName(), text, node))
			}
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return warn("", evidence...)
}

func checkWarned(c *cluster, _ offrampv1.Target) outcome {
	if !c.read("events") {
		return unread()
	}
	nodes := map[string][]string{}
	for _, event := range c.facts.GetEvents() {
		nodes[event.GetReason()] = append(nodes[event.GetReason()], event.GetNode())
	}
	var evidence []string
	for _, reason := range []string{"IPVSDeprecation", "KubeProxyDefaultMode"} {
		if count := len(nodes[reason]); count > 0 {
			evidence = append(evidence, fmt.Sprintf("%s: %d nodes, such as %s", reason, count, nodes[reason][0]))
		}
	}
	if len(evidence) == 0 {
		return quietly()
	}
	return inform("", evidence...)
}
