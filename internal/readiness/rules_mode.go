package readiness

import (
	"fmt"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func modeRules() []Rule {
	return []Rule{
		{
			ID:       "on-ipvs",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "kube-proxy runs in ipvs mode, which Kubernetes is going to remove",
			Severity: "warning, except for the target ipvs",
			Meaning:  "kube-proxy 1.40 does not start in ipvs mode unless the feature gate KubeProxyIPVS is set, 1.43 not at all.",
			Remedy:   "Change the mode in kube-proxy's configuration and restart it on this node, once it is ready.",
			Source:   "KEP-5495: deprecated in 1.35, off by default from 1.40, removed in 1.43 (a plan, it may move)",
			check:    checkOnIPVS,
		},
		{
			ID:       "other-mode",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "kube-proxy does not run in the target mode",
			Severity: "info",
			Meaning:  "Nothing is wrong; the node is not at the target that was asked about.",
			Remedy:   "Nothing, or another --target.",
			Source:   "the running mode, as kube-proxy tells it",
			check:    checkOtherMode,
		},
		{
			ID:       "running-mode-unknown",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "It could not be told in which mode kube-proxy runs, or that none does",
			Severity: "open",
			Meaning:  "Without the running mode it cannot be told which of kube-proxy's objects are in use and which are left over.",
			Remedy:   "Let the agent see the host's processes and kube-proxy's metrics address, or assert on the node that none is to run.",
			Source:   "kubernetes cmd/kube-proxy/app/server.go: /proxyMode on the metrics address",
			check:    checkRunningModeUnknown,
		},
		{
			ID:       "modes-disagree",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "What is configured, what runs and what is in the kernel are not the same mode",
			Severity: "blocker when kube-proxy never wrote its rules; warning when it needs a restart; open when the chains show no mode",
			Meaning:  "What is believed to run does not carry the traffic. A first sync of iptables mode that fails is never tried again, and the old virtual servers go on with the endpoints of that day.",
			Remedy:   "Find out in kube-proxy's log why its rules could not be written, mend that and restart it; clean up nothing before.",
			Source:   "seen on real nodes: a first sync of iptables mode that fails is never tried again, and IPVS goes on",
			check:    checkModesDisagree,
		},
	}
}

func checkOnIPVS(n *node, target offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) {
		return unread()
	}
	if n.running() != offrampv1.ProxyMode_PROXY_MODE_IPVS || target == offrampv1.Target_TARGET_IPVS {
		return quietly()
	}
	return warn("Change the mode in kube-proxy's configuration and restart it on this node.", n.runningEvidence())
}

func checkOtherMode(n *node, target offrampv1.Target) outcome {
	running := n.running()
	if running == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		return unread()
	}
	onIPVS := running == offrampv1.ProxyMode_PROXY_MODE_IPVS && target != offrampv1.Target_TARGET_IPVS
	if running == targetMode(target) || onIPVS {
		return quietly()
	}
	return inform("", n.runningEvidence(), "the target is "+modeName(targetMode(target)))
}

func checkRunningModeUnknown(n *node, target offrampv1.Target) outcome {
	if !n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) {
		return unread()
	}
	if n.running() != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN || n.untouched(target) {
		return quietly()
	}
	evidence := []string{fmt.Sprintf("%d processes named kube-proxy in sight", len(n.kubeProxy().GetProcesses()))}
	if !n.kubeProxy().GetHostProcessesVisible() {
		evidence = []string{"the processes of the host are not in sight"}
	}
	for _, endpoint := range n.kubeProxy().GetEndpoints() {
		evidence = append(evidence, endpointEvidence(endpoint))
	}
	evidence = append(evidence, evidenceOf(n.kubeProxys())...)
	return undecided("Let the agent see the host's processes and kube-proxy's metrics address (metricsBindAddress), or, where no "+
		"kube-proxy is to run, assert it with --assert-no-kube-proxy REASON.", evidence...)
}

// untouched reports whether nothing of kube-proxy's is in the kernel, nor a kube-proxy in sight: that node is without
// kube-proxy whatever its mode might be called.
func (n *node) untouched(target offrampv1.Target) bool {
	return target == offrampv1.Target_TARGET_NONE && !n.kubeProxySeen() &&
		len(n.kubeProxys()) == 0 && len(n.unattributed()) == 0 && n.read(kernelKinds()...)
}

func endpointEvidence(endpoint *offrampv1.KubeProxyEndpoint) string {
	if endpoint.GetStatus() == 0 {
		return endpoint.GetUrl() + ": " + orElse(endpoint.GetError(), "no answer")
	}
	return fmt.Sprintf("%s: status %d %s", endpoint.GetUrl(), endpoint.GetStatus(), endpoint.GetError())
}

func (n *node) runningEvidence() string {
	evidence := "running: " + modeName(n.running())
	if source := n.kubeProxy().GetRunningModeSource(); source != "" {
		evidence += " (" + source + ")"
	}
	return evidence
}

func modeName(mode offrampv1.ProxyMode) string {
	switch mode {
	case offrampv1.ProxyMode_PROXY_MODE_IPTABLES:
		return "iptables"
	case offrampv1.ProxyMode_PROXY_MODE_IPVS:
		return "ipvs"
	case offrampv1.ProxyMode_PROXY_MODE_NFTABLES:
		return "nftables"
	case offrampv1.ProxyMode_PROXY_MODE_NONE:
		return "none"
	default:
		return "unknown"
	}
}
