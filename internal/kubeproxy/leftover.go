package kubeproxy

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// Answer is yes, no, or it cannot be told.
type Answer uint8

// Answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// Leftover tells whether something of this owner is a leftover under the running mode: an artefact that kube-proxy made
// and the running mode does not use. Unknown when the running mode is unknown and the owner is kube-proxy, or the owner
// is unknown or no owner that this release knows. What is not kube-proxy's is never a leftover.
func Leftover(owner Owner, running offrampv1.ProxyMode) Answer {
	switch {
	case owner == OwnerKubelet, owner == OwnerKernel, owner.IsForeign():
		return No
	case !owner.IsKubeProxy():
		return Unknown
	default:
		return leftoverOfKubeProxy(owner, running)
	}
}

func leftoverOfKubeProxy(owner Owner, running offrampv1.ProxyMode) Answer {
	switch running {
	case offrampv1.ProxyMode_PROXY_MODE_IPTABLES:
		return unless(owner == OwnerIPTables || owner == OwnerShared)
	case offrampv1.ProxyMode_PROXY_MODE_IPVS:
		return unless(owner == OwnerIPVS || owner == OwnerShared)
	case offrampv1.ProxyMode_PROXY_MODE_NFTABLES:
		return unless(owner == OwnerNFTables)
	case offrampv1.ProxyMode_PROXY_MODE_NONE:
		return Yes
	default:
		return Unknown
	}
}

// unless answers No for what is used and Yes for what is not.
func unless(used bool) Answer {
	if used {
		return No
	}
	return Yes
}
