package fleet

import (
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// profile is what a list of nodes shows beside the assessment. Many nodes share one.
type profile struct {
	kernelRelease, osPrettyName, kubeProxyVersion                                 string
	rebootedSinceSwitch                                                           bool
	virtualServers, foreignVirtualServers, ipsets, iptablesChains, nftablesTables uint64
}

func profileOf(node *offrampv1.NodeFacts) profile {
	p := profile{rebootedSinceSwitch: rebooted(node)}
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

// rebooted reports whether the node booted after its mode last changed.
func rebooted(node *offrampv1.NodeFacts) bool {
	var changed, booted int64
	for _, section := range node.GetSections() {
		for _, change := range section.GetStable().GetHistory().GetModeChanges() {
			changed = change.GetAt().GetSeconds()
		}
		if at := section.GetVolatile().GetKernel().GetBootedAt(); at != nil {
			booted = at.GetSeconds()
		}
	}
	return changed > 0 && booted > changed
}

func foreign(owners []*offrampv1.OwnerCount) (count uint64) {
	for _, owner := range owners {
		if kubeproxy.Owner(owner.GetOwner()).IsForeign() {
			count += owner.GetCount()
		}
	}
	return count
}
