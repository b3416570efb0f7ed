package kubeproxy

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// ChainRule is what a rule of nat KUBE-SERVICES tells about the mode that wrote it.
type ChainRule struct {
	// HasSetMatch: the rule has a set match.
	HasSetMatch bool
	// Comment is the text of the comment match, "" when there is none.
	Comment string
	// To is the user-defined chain that the rule jumps to, "" when it jumps to none.
	To string
}

// nodePortsComment is on the last rules of nat KUBE-SERVICES in iptables mode.
const nodePortsComment = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"

// SharedChainsMode tells which mode filled the chains that ipvs and iptables mode share, from the rules of nat
// KUBE-SERVICES (pkg/proxy/ipvs/proxier.go writeIptablesRules, pkg/proxy/iptables/proxier.go syncProxyRules).
// It is unknown when neither's mark is there (an emptied chain carries none) or both are. Where there is no such chain
// the answer is PROXY_MODE_NONE, and this is not to be asked.
func SharedChainsMode(rules []ChainRule) offrampv1.ProxyMode {
	var ipvs, iptables bool
	for _, rule := range rules {
		to := chainName{"nat", rule.To}
		ipvs = ipvs || rule.HasSetMatch || rule.To == "KUBE-NODE-PORT"
		iptables = iptables || rule.Comment == nodePortsComment || isIPTablesHashChain(to)
	}
	switch {
	case ipvs && !iptables:
		return offrampv1.ProxyMode_PROXY_MODE_IPVS
	case iptables && !ipvs:
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	default:
		return offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	}
}
