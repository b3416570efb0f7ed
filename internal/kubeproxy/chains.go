package kubeproxy

import "sync"

// chainName is what a chain is known by; the names are the same in both families.
type chainName struct{ table, name string }

// ipvsChains are the chains of ipvs mode (pkg/proxy/ipvs/proxier.go iptablesChains; 1.28 lacks KUBE-IPVS-OUT-FILTER).
func ipvsChains() []chainName {
	return []chainName{
		{"nat", "KUBE-SERVICES"},
		{"nat", "KUBE-POSTROUTING"},
		{"nat", "KUBE-NODE-PORT"},
		{"nat", "KUBE-LOAD-BALANCER"},
		{"nat", "KUBE-MARK-MASQ"},
		{"filter", "KUBE-FORWARD"},
		{"filter", "KUBE-NODE-PORT"},
		{"filter", "KUBE-PROXY-FIREWALL"},
		{"filter", "KUBE-SOURCE-RANGES-FIREWALL"},
		{"filter", "KUBE-IPVS-FILTER"},
		{"filter", "KUBE-IPVS-OUT-FILTER"},
	}
}

// iptablesChains are the fixed chains of iptables mode (pkg/proxy/iptables/proxier.go iptablesJumpChains).
// Filter KUBE-FIREWALL is kubelet's: kube-proxy only copies it, and it stays necessary afterwards (CVE-2020-8558).
func iptablesChains() []chainName {
	return []chainName{
		{"nat", "KUBE-SERVICES"},
		{"nat", "KUBE-NODEPORTS"},
		{"nat", "KUBE-POSTROUTING"},
		{"nat", "KUBE-MARK-MASQ"},
		{"nat", "KUBE-PROXY-CANARY"},
		{"filter", "KUBE-SERVICES"},
		{"filter", "KUBE-EXTERNAL-SERVICES"},
		{"filter", "KUBE-FORWARD"},
		{"filter", "KUBE-NODEPORTS"},
		{"filter", "KUBE-PROXY-FIREWALL"},
		{"filter", "KUBE-PROXY-CANARY"},
		{"mangle", "KUBE-PROXY-CANARY"},
	}
}

// iptablesHashPrefixes begin the per-Service and per-endpoint chains of iptables mode, in the nat table only
// (pkg/proxy/iptables/proxier.go isServiceChainName). 16 characters of base32 follow.
func iptablesHashPrefixes() []string {
	return []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-FW-", "KUBE-EXT-", "KUBE-SEP-"}
}

// kubeletChains are kubelet's (pkg/kubelet/kubelet_network_linux.go). They are never removed. nat KUBE-MARK-DROP was made
// by kubelets before 1.28 and may still be used by a CNI; it counts as kubelet's, not as something unknown.
func kubeletChains() []chainName {
	return []chainName{
		{"mangle", "KUBE-IPTABLES-HINT"},
		{"mangle", "KUBE-KUBELET-CANARY"},
		{"nat", "KUBE-KUBELET-CANARY"},
		{"filter", "KUBE-KUBELET-CANARY"},
		{"filter", "KUBE-FIREWALL"},
		{"nat", "KUBE-MARK-DROP"},
	}
}

// chainOwners is whose each chain with a fixed name is.
var chainOwners = sync.OnceValue(func() map[chainName]Owner {
	return owners(ipvsChains(), iptablesChains(), kubeletChains())
})

// owners joins what ipvs mode, iptables mode and kubelet make: what both modes make is shared.
func owners[K comparable](ipvs, iptables, kubelet []K) map[K]Owner {
	all := map[K]Owner{}
	for _, key := range ipvs {
		all[key] = OwnerIPVS
	}
	for _, key := range iptables {
		if all[key] == OwnerIPVS {
			all[key] = OwnerShared
			continue
		}
		all[key] = OwnerIPTables
	}
	for _, key := range kubelet {
		all[key] = OwnerKubelet
	}
	return all
}
