package readiness

import (
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// leftovers counts what kube-proxy made and the running mode does not use, in the sections that could be read.
func (n *node) leftovers() *offrampv1.Leftovers {
	tally := &tally{count: &offrampv1.Leftovers{}}
	for _, owner := range n.ipvs().GetOwners() {
		tally.add(owner.GetOwner(), n.leftover(owner.GetOwner()), &tally.count.VirtualServers, owner.GetCount())
	}
	n.linkLeftovers(tally)
	n.ipsetLeftovers(tally)
	for _, part := range backends() {
		for _, owner := range n.iptables(part.kind).GetOwners() {
			answer := n.chainLeftover(part, owner.GetOwner())
			tally.add(owner.GetOwner(), answer, &tally.count.Chains, owner.GetChains())
			tally.add(owner.GetOwner(), answer, &tally.count.Jumps, owner.GetJumps())
		}
	}
	for _, owner := range n.nftables().GetOwners() {
		tally.add(owner.GetOwner(), n.leftover(owner.GetOwner()), &tally.count.Tables, owner.GetCount())
	}
	tally.count.Undecided = tally.count.Undecided || n.leftoversUnread()
	return tally.count
}

// leftoversUnread reports whether a section that could hold leftovers was not read.
func (n *node) leftoversUnread() bool {
	kinds := []offrampv1.SectionKind{
		offrampv1.SectionKind_SECTION_KIND_IPVS, offrampv1.SectionKind_SECTION_KIND_IPVS_LINK,
		offrampv1.SectionKind_SECTION_KIND_IPSETS, offrampv1.SectionKind_SECTION_KIND_NFTABLES,
	}
	unread := func(kind offrampv1.SectionKind) bool { return n.problems[kind] != "" }
	if slices.ContainsFunc(kinds, unread) {
		return true
	}
	for _, part := range backends() {
		if unread(part.kind) {
			return true
		}
	}
	return false
}

func (n *node) linkLeftovers(tally *tally) {
	link := n.link()
	if link == nil {
		return
	}
	answer := n.leftover(link.GetOwner())
	tally.add(link.GetOwner(), answer, &tally.count.Links, 1)
	tally.add(link.GetOwner(), answer, &tally.count.LinkAddresses, link.GetIpv4Addresses()+link.GetIpv6Addresses())
}

// ipsetLeftovers counts entries from the samples: every set of kube-proxy's is among them.
func (n *node) ipsetLeftovers(tally *tally) {
	for _, owner := range n.ipsets().GetOwners() {
		tally.add(owner.GetOwner(), n.leftover(owner.GetOwner()), &tally.count.Ipsets, owner.GetCount())
	}
	for _, set := range n.ipsets().GetSamples() {
		tally.add(set.GetOwner(), n.leftover(set.GetOwner()), &tally.count.IpsetEntries, set.GetEntries())
	}
}

type tally struct{ count *offrampv1.Leftovers }

// add counts what is left over, and notes what is kube-proxy's but of which it cannot be told.
func (t *tally) add(owner string, answer kubeproxy.Answer, sum *uint64, count uint64) {
	switch answer {
	case kubeproxy.Yes:
		*sum += count
	case kubeproxy.Unknown:
		if kubeproxy.Owner(owner).IsKubeProxy() && count > 0 {
			t.count.Undecided = true
		}
	case kubeproxy.No:
	}
}

// AnyLeft reports whether anything is left over.
func AnyLeft(left *offrampv1.Leftovers) bool {
	return left.GetVirtualServers()+left.GetLinks()+left.GetLinkAddresses()+left.GetIpsets()+left.GetIpsetEntries()+
		left.GetChains()+left.GetJumps()+left.GetTables() > 0
}

// LeftoverKinds is what Leftovers counts, by the words that metrics use: every kind, also those of which there are none.
func LeftoverKinds(left *offrampv1.Leftovers) map[string]uint64 {
	return map[string]uint64{
		"virtual-servers": left.GetVirtualServers(), "links": left.GetLinks(), "link-addresses": left.GetLinkAddresses(),
		"ipsets": left.GetIpsets(), "ipset-entries": left.GetIpsetEntries(),
		"chains": left.GetChains(), "jumps": left.GetJumps(), "tables": left.GetTables(),
	}
}
