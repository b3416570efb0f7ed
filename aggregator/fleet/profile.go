package fleet

import (
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// profile is what a list of nodes shows beside the assessment. Many nodes share one.
type profile struct {
	kernelRelease, osPrettyName, kubeProxyVersion                                 string
	virtualServers, foreignVirtualServers, ipsets, iptablesChains, nftablesTables uint64
}

func profileOf(node *offrampv1.NodeFacts) profile {
	var p profile
	for _, section := range node.GetSections() {
		stable := section.GetStable()
		if kernel := stable.GetKernel(); kernel != nil {
			p.kernelRelease, p.osPrettyName = kernel.GetRelease(), kernel.GetOsPrettyName()
		}
		p.kubeProxyVersion += stable.GetKubeProxy().GetVersion()
		p.virtualServers += stable.GetIpvs().GetVirtualServers()
		p.foreignVirtualServers += foreign(stable.GetIpvs().GetOwners())
		p.ipsets += stable.GetIpsets().GetSets()
		p.nftablesTables += stable.GetNftables().GetTables()
		for _, table := range stable.GetIptables().GetTables() {
			p.iptablesChains += table.GetChains()
		}
	}
	return p
}

func foreign(owners []*offrampv1.OwnerCount) (count uint64) {
	for _, owner := range owners {
		if kubeproxy.Owner(owner.GetOwner()).IsForeign() {
			count += owner.GetCount()
		}
	}
	return count
}
