package readiness_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// owned is what owners.txt of a capture says, counted.
type owned struct {
	servers, tables map[string]uint64
	sets            map[string]string // name -> owner
	link            string            // owner of kube-ipvs0, "" where there is none
	chains, jumps   map[chainKey]uint64
}

type chainKey struct{ family, table, owner string }

func readOwned(t *testing.T, capture string) owned {
	t.Helper()
	out := owned{
		servers: map[string]uint64{}, tables: map[string]uint64{}, sets: map[string]string{},
		chains: map[chainKey]uint64{}, jumps: map[chainKey]uint64{},
	}
	for line := range strings.Lines(fileOf(t, capture, "owners.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		out.add(strings.Split(strings.TrimSpace(line), "\t"))
	}
	return out
}

func (o *owned) add(fields []string) {
	owner := fields[len(fields)-1]
	switch fields[0] {
	case "server":
		o.servers[owner]++
	case "table":
		o.addTable(owner)
	case "set":
		o.sets[fields[3]] = owner
	case "link":
		if fields[1] == "kube-ipvs0" {
			o.link = owner
		}
	case "chain":
		o.chains[chainKey{fields[1], fields[2], owner}]++
	case "jump":
		o.jumps[chainKey{fields[1], fields[2], owner}]++
	}
}

// addTable leaves the tables of iptables-nft out: they have sections of their own.
func (o *owned) addTable(owner string) {
	if owner != "foreign:iptables-nft" {
		o.tables[owner]++
	}
}

func (o *owned) ipvs() *offrampv1.SectionStable {
	facts := &offrampv1.IpvsFacts{Owners: sortedCounts(o.servers)}
	for _, count := range o.servers {
		facts.VirtualServers += count
	}
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipvs{Ipvs: facts}}
}

func (o *owned) ipvsLink(t *testing.T, capture string) *offrampv1.SectionStable {
	t.Helper()
	facts := &offrampv1.IpvsLinkFacts{LinkType: "dummy", Owner: o.link}
	_, after, _ := strings.Cut(fileOf(t, capture, "ip-addr.txt"), ": kube-ipvs0: ")
	facts.Ipv4Addresses = uint64(strings.Count(after, "    inet "))
	facts.Ipv6Addresses = uint64(strings.Count(after, "    inet6 "))
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_IpvsLink{IpvsLink: facts}}
}

func (o *owned) ipsets(t *testing.T, capture string) *offrampv1.SectionStable {
	t.Helper()
	facts := &offrampv1.IpsetsFacts{Sets: uint64(len(o.sets))}
	owners := map[string]uint64{}
	save := "\n" + fileOf(t, capture, "ipset-save.txt")
	for name, owner := range o.sets {
		entries := uint64(strings.Count(save, "\nadd "+name+" "))
		facts.Samples = append(facts.Samples, &offrampv1.Ipset{Name: name, Owner: owner, Entries: entries})
		facts.Entries += entries
		owners[owner]++
	}
	facts.Owners = sortedCounts(owners)
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipsets{Ipsets: facts}}
}

func (o *owned) iptables(family string, shared offrampv1.ProxyMode) *offrampv1.SectionStable {
	facts := &offrampv1.IptablesFacts{SharedChainsMode: shared}
	for key, count := range o.chains {
		if key.family == family {
			facts.Owners = append(facts.Owners, &offrampv1.ChainCount{
				Table: key.table, Owner: key.owner, Chains: count, Jumps: o.jumps[key],
			})
		}
	}
	slices.SortFunc(facts.Owners, func(a, b *offrampv1.ChainCount) int {
		return cmp.Or(cmp.Compare(a.GetTable(), b.GetTable()), cmp.Compare(a.GetOwner(), b.GetOwner()))
	})
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Iptables{Iptables: facts}}
}

func (o *owned) nftables() *offrampv1.SectionStable {
	facts := &offrampv1.NftablesFacts{Owners: sortedCounts(o.tables)}
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Nftables{Nftables: facts}}
}
