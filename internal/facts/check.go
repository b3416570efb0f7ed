package facts

import (
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// checkContent judges whichever content is there; the getters of the others give nil, which breaks no bound.
func checkContent(stable *offrampv1.SectionStable) error {
	var b bounds
	b.kubeProxy(stable.GetKubeProxy())
	b.ipvs(stable.GetIpvs())
	b.ipvsLink(stable.GetIpvsLink())
	b.ipsets(stable.GetIpsets())
	b.iptables(stable.GetIptables())
	b.nftables(stable.GetNftables())
	b.list("sysctls", len(stable.GetSysctls().GetValues()), maxSysctls)
	b.count("addresses", stable.GetAddresses().GetCount(), maxNodeAddresses)
	b.list("addresses", len(stable.GetAddresses().GetSamples()), maxAddressSamples)
	b.list("mode changes", len(stable.GetHistory().GetModeChanges()), maxModeChanges)
	b.host(stable.GetHost())
	return b.err
}

func (b *bounds) kubeProxy(content *offrampv1.KubeProxyFacts) {
	b.list("processes", len(content.GetProcesses()), maxProcesses)
	b.list("endpoints", len(content.GetEndpoints()), maxEndpoints)
	b.list("families", len(content.GetFamilies()), maxFamilies)
	b.kubeProxySettings(content)
	for _, process := range content.GetProcesses() {
		b.list("arguments", len(process.GetArgs()), maxArgs)
		for _, arg := range process.GetArgs() {
			if len(arg) > maxArgBytes {
				b.failf("an argument has %d bytes, more than %d", len(arg), maxArgBytes)
			}
		}
	}
}

func (b *bounds) kubeProxySettings(content *offrampv1.KubeProxyFacts) {
	settings := content.GetSettings()
	for what, list := range map[string][]string{
		"excluded CIDRs": settings.GetIpvsExcludeCidrs(), "node port addresses": settings.GetNodePortAddresses(),
		"cluster CIDRs": settings.GetClusterCidrs(), "feature gates": settings.GetFeatureGates(),
	} {
		b.list(what, len(list), maxSettings)
	}
	b.list("files", len(content.GetFiles()), maxSamples)
	b.list("reasons against none", len(content.GetNoneMissing()), maxSamples)
	b.list("replacements", len(content.GetReplacements()), maxSamples)
}

func (b *bounds) ipvs(content *offrampv1.IpvsFacts) {
	total := content.GetVirtualServers()
	b.count("virtual servers", total, maxVirtualServers)
	b.count("real servers", content.GetRealServers(), maxRealServers)
	b.count("real servers of weight 0", content.GetRealServersWeightZero(), maxRealServers)
	b.list("schedulers", len(content.GetSchedulers()), maxSchedulers)
	for _, scheduler := range content.GetSchedulers() {
		b.part("virtual servers of a scheduler", scheduler.GetVirtualServers(), total)
	}
	b.owners("virtual servers", content.GetOwners(), total)
	perOwner(b, "virtual servers", content.GetSamples(), maxSamplesPerOwner)
	b.digest(content.GetList(), offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, total)
	b.list("excluded CIDRs", len(content.GetExcludeCidrs()), maxSettings)
	b.part("persistent virtual servers", content.GetPersistent(), total)
}

func (b *bounds) ipvsLink(content *offrampv1.IpvsLinkFacts) {
	b.count("IPv4 addresses", content.GetIpv4Addresses(), maxVirtualServers)
	b.count("IPv6 addresses", content.GetIpv6Addresses(), maxVirtualServers)
	b.list("addresses", len(content.GetSamples()), maxSamples)
	total := content.GetIpv4Addresses() + content.GetIpv6Addresses()
	b.digest(content.GetList(), offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, total)
	b.count("local routes", content.GetLocalRoutes(), maxVirtualServers)
	b.part("routes that prefer themselves as source", content.GetSelfSourceRoutes(), content.GetLocalRoutes())
	b.list("wildcard listeners", len(content.GetWildcardListeners()), maxListeners)
	b.list("addresses claimed by neighbours", len(content.GetClaimedByNeighbours()), maxSamples)
}

func (b *bounds) ipsets(content *offrampv1.IpsetsFacts) {
	b.count("sets", content.GetSets(), maxSets)
	b.count("entries", content.GetEntries(), maxSetEntries)
	b.owners("sets", content.GetOwners(), content.GetSets())
	var ours, others []*offrampv1.Ipset
	for _, set := range content.GetSamples() {
		b.count("entries in a set", set.GetEntries(), maxSetEntries)
		b.list("holders of a set", len(set.GetHolders()), maxSamples)
		if kubeproxy.Owner(set.GetOwner()).IsKubeProxy() {
			ours = append(ours, set)
		} else {
			others = append(others, set)
		}
	}
	b.list("sets of kube-proxy's", len(ours), maxKubeProxySets)
	perOwner(b, "sets", others, maxSamplesPerOwner)
}

func (b *bounds) iptables(content *offrampv1.IptablesFacts) {
	b.list("tables", len(content.GetTables()), maxTables)
	for _, table := range content.GetTables() {
		b.count("chains", table.GetChains(), maxChains)
		b.count("rules", table.GetRules(), maxRules)
	}
	b.list("owners", len(content.GetOwners()), maxTables*maxOwners)
	for _, owner := range content.GetOwners() {
		b.count("chains", owner.GetChains(), maxChains)
		b.count("rules", owner.GetRules(), maxRules)
		b.count("jumps", owner.GetJumps(), maxRules)
		b.list("chains", len(owner.GetSamples()), maxSamples)
	}
	b.list("foreign references", len(content.GetForeignReferences()), maxForeignReferences)
	b.count("foreign references", content.GetForeignReferenceCount(), maxRules)
	b.list("foreign set matches", len(content.GetForeignSetMatches()), maxForeignReferences)
	b.count("foreign set matches", content.GetForeignSetMatchCount(), maxRules)
	b.list("foreign marks", len(content.GetForeignMarks()), maxForeignReferences)
	b.count("foreign marks", content.GetForeignMarkCount(), maxRules)
	b.count("duplicate jumps", content.GetDuplicateJumps(), maxRules)
	b.list("drop policies", len(content.GetDropPolicies()), maxSamples)
}

func (b *bounds) nftables(content *offrampv1.NftablesFacts) {
	b.count("tables", content.GetTables(), maxNftTables)
	b.owners("tables", content.GetOwners(), content.GetTables())
	perOwner(b, "tables", content.GetSamples(), maxSamplesPerOwner)
	for _, table := range content.GetSamples() {
		b.count("chains", table.GetChains(), maxChains)
		b.count("sets", table.GetSets(), maxChains)
		b.count("rules", table.GetRules(), maxRules)
		b.list("base chains", len(table.GetBaseChains()), maxSamples)
		b.list("sets", len(table.GetSetSamples()), maxSamples)
		b.list("newer features", len(table.GetNewerFeatures()), maxSamples)
	}
	b.list("drop chains", len(content.GetDropChains()), maxSamples)
	b.list("foreign marks", len(content.GetForeignMarks()), maxForeignReferences)
	b.count("foreign marks", content.GetForeignMarkCount(), maxRules)
	// An nftables map of Services has as many keys as ipvs mode would have virtual servers.
	b.digest(content.GetList(), offrampv1.ListName_LIST_NAME_NFTABLES_SERVICES, maxVirtualServers)
}

func (b *bounds) host(content *offrampv1.HostFacts) {
	b.list("kernel features", len(content.GetFeatures()), maxFeatures)
	for _, feature := range content.GetFeatures() {
		b.list("modes that need a feature", len(feature.GetNeededBy()), maxFamilies)
	}
	b.list("programs", len(content.GetPrograms()), maxSamples)
	b.list("accounting objects", len(content.GetAccountingObjects()), maxOwners)
	b.list("files", len(content.GetFiles()), maxSamples)
	for _, file := range content.GetFiles() {
		b.list("names in a file", len(file.GetNames()), maxSamples)
	}
	b.list("programs seen", len(content.GetProgramsSeen()), maxSamples)
	b.list("unreadable places", len(content.GetUnreadable()), maxSamples)
}
