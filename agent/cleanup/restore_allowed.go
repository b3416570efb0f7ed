package cleanup

import (
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// restoreClass is a class of artefacts that a restore brings back together.
type restoreClass string

// Classes in the order in which they come back.
const (
	restoreAccounting restoreClass = "nfacct objects"
	restoreSets       restoreClass = "ipsets"
	restoreChains     restoreClass = "chains and jumps"
	restoreTables     restoreClass = "tables of nftables mode"
	restoreServers    restoreClass = "virtual servers"
	restoreLink       restoreClass = "kube-ipvs0"
	restoreSysctls    restoreClass = "sysctls"
)

// restoreAllows says whether a class comes back while a mode runs. docs/restore.md has the same table; a test compares.
//
// What a live kube-proxy would fight over, or what would take traffic away from it, never does: virtual servers and the
// link under nftables and iptables, a table of nftables mode under any, and under ipvs all that ipvs mode makes itself.
func restoreAllows(class restoreClass, mode offrampv1.ProxyMode) bool {
	switch mode {
	case offrampv1.ProxyMode_PROXY_MODE_NONE:
		return true
	case offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ProxyMode_PROXY_MODE_IPTABLES:
		return slices.Contains([]restoreClass{restoreAccounting, restoreSets, restoreChains, restoreSysctls}, class)
	case offrampv1.ProxyMode_PROXY_MODE_IPVS:
		return slices.Contains([]restoreClass{restoreAccounting, restoreChains, restoreSysctls}, class)
	default:
		return false
	}
}

// restoreAllowsOwner says whether chains and jumps of an owner come back while a mode runs: not those that the running mode
// makes itself.
func restoreAllowsOwner(owner kubeproxy.Owner, mode offrampv1.ProxyMode) bool {
	switch mode {
	case offrampv1.ProxyMode_PROXY_MODE_IPTABLES:
		return owner == kubeproxy.OwnerIPVS
	case offrampv1.ProxyMode_PROXY_MODE_IPVS:
		return owner == kubeproxy.OwnerIPTables
	case offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ProxyMode_PROXY_MODE_NONE:
		return permitsOwner(owner) == nil
	default:
		return false
	}
}
