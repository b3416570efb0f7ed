package render

import (
	"fmt"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func (p *page) ipvs(name string, facts *offrampv1.IpvsFacts, moving *offrampv1.IpvsVolatile) {
	p.line(2, "%s: present, %s", name, joinParts(count(facts.GetVirtualServers(), "virtual server"),
		fmt.Sprintf("%s (%s of weight 0)", count(facts.GetRealServers(), "real server"), number(facts.GetRealServersWeightZero()))))
	p.owners(facts.GetOwners())
	schedulers := make([]string, 0, len(facts.GetSchedulers()))
	for _, scheduler := range facts.GetSchedulers() {
		schedulers = append(schedulers, Clean(scheduler.GetScheduler())+" "+number(scheduler.GetVirtualServers()))
	}
	p.field(6, "schedulers", strings.Join(schedulers, ", "))
	if moving != nil {
		p.line(6, "connections: %s active, %s inactive", number(moving.GetActiveConnections()), number(moving.GetInactiveConnections()))
	}
	p.field(6, "owners could not be told", facts.GetAttributionError())
	for _, server := range facts.GetSamples() {
		if owner := server.GetOwner(); !strings.HasPrefix(owner, "kube-proxy/") {
			p.line(6, "of %s: %s, %s%s", Clean(owner), serverName(server), count(uint64(server.GetRealServers()), "real server"),
				parentheses(Clean(server.GetReason())))
		}
	}
}

func serverName(server *offrampv1.VirtualServer) string {
	if server.GetProtocol() == "FWM" {
		return fmt.Sprintf("firewall mark %d", server.GetFwmark())
	}
	address := Clean(server.GetAddress())
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return fmt.Sprintf("%s %s:%d", Clean(server.GetProtocol()), address, server.GetPort())
}

func (p *page) ipvsLink(name string, facts *offrampv1.IpvsLinkFacts) {
	state := "down"
	if facts.GetUp() {
		state = "up"
	}
	p.line(2, "%s: present, %s, %s, owner %s, %s and %s", name, Clean(facts.GetLinkType()), state, Clean(facts.GetOwner()),
		count(facts.GetIpv4Addresses(), "IPv4 address"), count(facts.GetIpv6Addresses(), "IPv6 address"))
}

func (p *page) ipsets(name string, facts *offrampv1.IpsetsFacts) {
	p.line(2, "%s: present, %s with %s", name, count(facts.GetSets(), "set"), count(facts.GetEntries(), "entry"))
	p.owners(facts.GetOwners())
}

func (p *page) iptables(name string, facts *offrampv1.IptablesFacts) {
	tables := make([]string, 0, len(facts.GetTables()))
	for _, table := range facts.GetTables() {
		tables = append(tables, fmt.Sprintf("%s %s in %s", Clean(table.GetName()), count(table.GetRules(), "rule"), count(table.GetChains(), "chain")))
	}
	p.line(2, "%s: present, %s", name, strings.Join(tables, "; "))
	for _, owner := range facts.GetOwners() {
		p.line(6, "%s has in %s: %s, %s, %s", Clean(owner.GetOwner()), Clean(owner.GetTable()), count(owner.GetChains(), "chain"),
			count(owner.GetRules(), "rule"), count(owner.GetJumps(), "jump"))
	}
	if mode := facts.GetSharedChainsMode(); mode != offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED {
		p.line(6, "chains that ipvs and iptables mode share were filled by: %s", Word(mode))
	}
	p.foreignReferences(facts)
}

func (p *page) foreignReferences(facts *offrampv1.IptablesFacts) {
	if facts.GetForeignReferenceCount() == 0 {
		return
	}
	p.line(6, "jumps of others into kube-proxy's chains: %s", number(facts.GetForeignReferenceCount()))
	for _, jump := range facts.GetForeignReferences() {
		p.line(8, "%s: %s -> %s", Clean(jump.GetTable()), Clean(jump.GetFromChain()), Clean(jump.GetToChain()))
	}
}

func (p *page) nftables(name string, facts *offrampv1.NftablesFacts) {
	p.line(2, "%s: present, %s", name, count(facts.GetTables(), "native table"))
	p.owners(facts.GetOwners())
	for _, table := range facts.GetSamples() {
		p.line(6, "table %s %s: %s, %s, %s, owner %s", Clean(table.GetFamily()), Clean(table.GetName()), count(table.GetChains(), "chain"),
			count(table.GetRules(), "rule"), count(table.GetSets(), "set"), Clean(table.GetOwner()))
	}
	p.nftMarks(facts)
}

func (p *page) nftMarks(facts *offrampv1.NftablesFacts) {
	if facts.GetForeignMarkCount() == 0 {
		return
	}
	p.line(6, "rules of others about the masquerade mark: %s", number(facts.GetForeignMarkCount()))
	for _, mark := range facts.GetForeignMarks() {
		what := "matches it"
		if mark.GetSets() {
			what = "sets it"
		}
		p.line(8, "%s %s %s: %s", Clean(mark.GetFamily()), Clean(mark.GetTable()), Clean(mark.GetChain()), what)
	}
}

func (p *page) owners(owners []*offrampv1.OwnerCount) {
	parts := make([]string, 0, len(owners))
	for _, owner := range owners {
		parts = append(parts, Clean(owner.GetOwner())+" "+number(owner.GetCount()))
	}
	p.field(6, "owners", strings.Join(parts, ", "))
}
