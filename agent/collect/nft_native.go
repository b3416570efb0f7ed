package collect

import (
	"cmp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// nativeSection reports the tables that are not iptables-nft's.
func (s *nftSnapshot) nativeSection(services *offrampv1.ListDigest) *offrampv1.Section {
	content := &offrampv1.NftablesFacts{List: services, DropChains: s.dropChains(), ForeignMarks: s.marks.sorted(), ForeignMarkCount: s.marks.count}
	owners := ownerCounter{}
	for _, table := range s.nativeTables() {
		owner := table.owner()
		content.Tables++
		if count := owners.add(owner); count <= maxSamples || owner.IsKubeProxy() {
			content.Samples = append(content.Samples, table.sample(owner))
		}
	}
	content.Owners = owners.counts()
	section := read(kindNFT, content.GetTables() == 0, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Nftables{Nftables: content},
	})
	section.Volatile.Content = &offrampv1.SectionVolatile_Nftables{
		Nftables: &offrampv1.NftablesVolatile{Generation: s.generation},
	}
	return section
}

// nativeTables returns the tables that are not iptables-nft's, sorted by family, then name.
func (s *nftSnapshot) nativeTables() []*nftTable {
	var tables []*nftTable
	for _, table := range s.tables {
		if table.iptables == nil {
			tables = append(tables, table)
		}
	}
	slices.SortFunc(tables, func(a, b *nftTable) int {
		return cmp.Or(cmp.Compare(nftFamily(a.family), nftFamily(b.family)), cmp.Compare(a.name, b.name))
	})
	return tables
}

func (t *nftTable) sample(owner kubeproxy.Owner) *offrampv1.NftTable {
	return &offrampv1.NftTable{
		Family: nftFamily(t.family), Name: printable([]byte(t.name)), Owner: string(owner),
		Chains: t.chains, Sets: t.sets, Rules: t.rules,
		OwnedByProcess: t.flags&nftTableOwned != 0, BaseChains: t.baseChains, SetSamples: t.setSamples, NewerFeatures: t.newer,
	}
}

// dropChains lists base chains of anybody's that drop what nobody accepted before, iptables-nft's included.
func (s *nftSnapshot) dropChains() []string {
	var chains []string
	for _, table := range s.tables {
		chains = append(chains, table.dropChains...)
	}
	slices.Sort(chains)
	return chains[:min(len(chains), maxSamples)]
}

// kubeProxyTables returns kube-proxy's tables, IPv4 first.
func (s *nftSnapshot) kubeProxyTables() []*nftTable {
	return slices.DeleteFunc(s.nativeTables(), func(t *nftTable) bool { return !t.isKubeProxys() })
}

// nftFamily names a family as nft does.
func nftFamily(family uint8) string {
	switch family {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	case unix.NFPROTO_IPV6:
		return "ip6"
	default:
		return strconv.Itoa(int(family))
	}
}
