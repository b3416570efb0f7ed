package kubeproxy

import "sync"

// jumpRule is a jump from a built-in chain; the rules are the same in both families.
type jumpRule struct {
	table, from, to, comment string
	// ctStateNew: the rule matches "-m conntrack --ctstate NEW" too.
	ctStateNew bool
}

// ipvsJumps are the jumps of ipvs mode (pkg/proxy/ipvs/proxier.go iptablesJumpChain; 1.28 lacks the last one).
func ipvsJumps() []jumpRule {
	return []jumpRule{
		{"nat", "OUTPUT", "KUBE-SERVICES", "kubernetes service portals", false},
		{"nat", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals", false},
		{"nat", "POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules", false},
		{"filter", "FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules", false},
		{"filter", "INPUT", "KUBE-NODE-PORT", "kubernetes health check rules", false},
		{"filter", "INPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules", false},
		{"filter", "FORWARD", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules", false},
		{"filter", "INPUT", "KUBE-IPVS-FILTER", "kubernetes ipvs access filter", false},
		{"filter", "OUTPUT", "KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter", false},
	}
}

// iptablesJumps are the jumps of iptables mode (pkg/proxy/iptables/proxier.go iptablesJumpChains), alike since 1.28.
func iptablesJumps() []jumpRule {
	return []jumpRule{
		{"filter", "INPUT", "KUBE-EXTERNAL-SERVICES", "kubernetes externally-visible service portals", true},
		{"filter", "FORWARD", "KUBE-EXTERNAL-SERVICES", "kubernetes externally-visible service portals", true},
		{"filter", "INPUT", "KUBE-NODEPORTS", "kubernetes health check service ports", false},
		{"filter", "FORWARD", "KUBE-SERVICES", "kubernetes service portals", true},
		{"filter", "OUTPUT", "KUBE-SERVICES", "kubernetes service portals", true},
		{"filter", "FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules", false},
		{"filter", "INPUT", "KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall", true},
		{"filter", "OUTPUT", "KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall", true},
		{"filter", "FORWARD", "KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall", true},
		{"nat", "OUTPUT", "KUBE-SERVICES", "kubernetes service portals", false},
		{"nat", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals", false},
		{"nat", "POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules", false},
	}
}

// kubeletJumps are kubelet's, and the copies that kube-proxy makes in both families (iptablesKubeletJumpChains).
func kubeletJumps() []jumpRule {
	return []jumpRule{
		{"filter", "INPUT", "KUBE-FIREWALL", "", false},
		{"filter", "OUTPUT", "KUBE-FIREWALL", "", false},
	}
}

// jumpOwners is whose each jump from a built-in chain is.
var jumpOwners = sync.OnceValue(func() map[jumpRule]Owner {
	return owners(ipvsJumps(), iptablesJumps(), kubeletJumps())
})
