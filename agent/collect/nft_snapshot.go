package collect

import (
	"hash/maphash"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// nftSnapshot counts one walk through the ruleset: tables of the iptables-nft backend apart from native ones.
type nftSnapshot struct {
	seed       maphash.Seed
	generation uint32
	ipv4, ipv6 *ruleset
	tables     map[nftTableKey]*nftTable
	// current is the table of the object before: they come table by table.
	current *nftTable
}

type nftTableKey struct {
	family uint8
	name   string
}

// nftTable is what was counted in one table.
type nftTable struct {
	nftTableKey
	// iptables is nil for a native table.
	iptables            *ruleset
	chains, sets, rules uint64
	// uses sums up the kernel's counts of rules in the chains and of jumps to them; jumps is how many of those stand in
	// rules.
	uses, jumps uint64
	// seen is the fingerprint of the rules.
	seen maphash.Hash
	// The highest handles so far.
	lastChain, lastSet uint64
}

func newNFTSnapshot(seed maphash.Seed) *nftSnapshot {
	return &nftSnapshot{
		seed:   seed,
		ipv4:   newRuleset(kubeproxy.IPv4),
		ipv6:   newRuleset(kubeproxy.IPv6),
		tables: map[nftTableKey]*nftTable{},
	}
}

// addHead counts a table, chain or set.
func (s *nftSnapshot) addHead(kind nftKind, object *nftObject) error {
	if kind.request == unix.NFT_MSG_GETTABLE {
		return s.addTable(object)
	}
	table := s.find(object)
	switch {
	case table == nil:
		return errTorn
	case kind.request == unix.NFT_MSG_GETCHAIN:
		return table.addChain(object)
	default:
		return table.addSet(object)
	}
}

// addRule counts a rule.
func (s *nftSnapshot) addRule(_ nftKind, object *nftObject) error {
	table := s.find(object)
	if table == nil {
		return errTorn
	}
	object.fingerprint(&table.seen)
	return table.addRule(object)
}

func (s *nftSnapshot) find(object *nftObject) *nftTable {
	if s.current == nil || s.current.family != object.family || s.current.name != string(object.table) {
		s.current = s.tables[nftTableKey{object.family, string(object.table)}]
	}
	return s.current
}

func (s *nftSnapshot) addTable(object *nftObject) error {
	table := &nftTable{nftTableKey: nftTableKey{object.family, string(object.table)}}
	if s.tables[table.nftTableKey] != nil {
		return errTorn
	}
	table.seen.SetSeed(s.seed)
	if isIPTablesName(table.name) {
		switch table.family {
		case unix.NFPROTO_IPV4:
			table.iptables = s.ipv4
		case unix.NFPROTO_IPV6:
			table.iptables = s.ipv6
		}
	}
	if table.iptables != nil {
		table.iptables.addTable(table.name)
	}
	s.tables[table.nftTableKey] = table
	return nil
}

// isIPTablesName tells the tables of iptables-nft from others. There is no other mark: a table of one of these names that
// somebody made with nft is seen and used by iptables-nft too.
func isIPTablesName(name string) bool {
	return slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, name)
}

// rises makes sure that nothing comes twice: a dump that is continued while somebody prepares a transaction goes back by
// as many chains (or sets) as that holds (nf_tables_dump_chains), and neither the flag nor the generation tells. Chains
// and sets are listed in the order in which they were made.
func rises(last *uint64, handle uint64) error {
	if handle <= *last {
		return errTorn
	}
	*last = handle
	return nil
}

func (t *nftTable) addChain(object *nftObject) error {
	t.chains++
	t.uses += uint64(object.use)
	if t.iptables != nil {
		t.iptables.addChain(t.name, string(object.name), object.hooked)
	}
	return rises(&t.lastChain, object.handle)
}

func (t *nftTable) addSet(object *nftObject) error {
	if !object.anonymous {
		t.sets++
	}
	return rises(&t.lastSet, object.handle)
}

func (t *nftTable) addRule(object *nftObject) error {
	t.rules++
	if t.iptables == nil {
		return nil
	}
	rule, err := parseNFTRule(object)
	if err != nil {
		return err
	}
	if len(rule.to) > 0 {
		t.jumps++
	}
	t.iptables.addRule(t.name, object.name, &rule)
	return nil
}

// addsUp reports whether the kernel's own counts prove that every rule was seen, and none twice. They do not for a native
// table, whose expressions are not looked at, nor where maps hold jumps too.
func (t *nftTable) addsUp() bool {
	return t.iptables != nil && t.uses == t.rules+t.jumps
}
