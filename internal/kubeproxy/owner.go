// Package kubeproxy knows every name that kube-proxy, kubelet and their look-alikes own in a kernel, per mode and version,
// and answers two questions about a thing found on a node: who owns it, and is it a leftover there.
//
// It does no I/O. Names are matched exactly, or by a full pattern with a fixed length; never by a prefix, since other
// programs (kube-router, cri-o, CNI plugins) use the prefix KUBE- too.
package kubeproxy

import "strings"

// Owner says who made an artefact, in the words of the reports: one of the constants below, or Foreign(who).
type Owner string

// Owners. OwnerShared is what ipvs and iptables mode both make under one name.
const (
	OwnerIPVS     Owner = "kube-proxy/ipvs"
	OwnerIPTables Owner = "kube-proxy/iptables"
	OwnerNFTables Owner = "kube-proxy/nftables"
	OwnerShared   Owner = "kube-proxy/shared"
	OwnerKubelet  Owner = "kubelet"
	OwnerUnknown  Owner = "unknown"
	// OwnerKernel is whose the built-in chains are: nobody's.
	OwnerKernel Owner = "kernel"
)

const foreignPrefix = "foreign:"

// Foreign returns the owner "foreign:WHO".
func Foreign(who string) Owner { return Owner(foreignPrefix + who) }

// IsForeign reports whether o is somebody other than Kubernetes' own components.
func (o Owner) IsForeign() bool { return strings.HasPrefix(string(o), foreignPrefix) }

// IsKubeProxy reports whether kube-proxy made the artefact, in whichever mode.
func (o Owner) IsKubeProxy() bool {
	switch o {
	case OwnerIPVS, OwnerIPTables, OwnerNFTables, OwnerShared:
		return true
	default:
		return false
	}
}
