package collect

import (
	"bytes"
	"hash/maphash"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// nftSnapshot counts one walk through the ruleset: tables of the iptables-nft backend apart from native ones.
type nftSnapshot struct {
	seed       maphash.Seed
	generation uint32
	ipv4, ipv6 *ruleset
	tables     map[nftTableKey]*nftTable
	// native collects what rules of native tables hold.
	native *ruleset
	marks  nativeMarks
	// services are kube-proxy's Service maps.
	services []serviceMap
	// current is the table of the object before: they come table by table.
	current *nftTable
}

type nftTableKey struct {
	family uint8
	name   string
}

// nftSetHead is what the kernel says of a set's elements without listing them.
type nftSetHead struct {
	count   uint32
	counted bool
}

// nftTable is what was counted in one table.
type nftTable struct {
	nftTableKey
	// iptables is nil for a native table.
	iptables            *ruleset
	flags               uint32
	chains, sets, rules uint64
	baseChains          []*offrampv1.NftBaseChain
	setSamples          []*offrampv1.NftSet
	dropChains, newer   []string
	// verdictMaps are the maps whose elements are verdicts, with the chains that look into them, as far as they are to be
	// read: those of iptables-nft tables, and of kube-proxy's those that are not Service maps.
	verdictMaps map[string][]string
	// unproven: not all jumps can be told, so that counts say nothing about whether all rules were seen.
	unproven bool
	// serviceHeads are the Service maps that a table of kube-proxy's has.
	serviceHeads map[string]nftSetHead
	// movesByItself: something in it changes without a commit.
	movesByItself bool
	// uses sums up the kernel's counts of rules in the chains and of jumps to them; jumps is how many of those stand in
	// rules and elements of maps.
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
		native: newRuleset(kubeproxy.FamilyAny),
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
	return s.addRuleTo(table, object)
}

func (s *nftSnapshot) find(object *nftObject) *nftTable {
	if s.current == nil || s.current.family != object.family || s.current.name != string(object.table) {
		s.current = s.tables[nftTableKey{object.family, string(object.table)}]
	}
	return s.current
}

func (s *nftSnapshot) addTable(object *nftObject) error {
	table := &nftTable{
		nftTableKey: nftTableKey{object.family, string(object.table)}, flags: object.flags, verdictMaps: map[string][]string{},
		serviceHeads: map[string]nftSetHead{},
		// It ends with its owner, which moves no generation (nf_tables_api.c nft_rcv_nl_event).
		movesByItself: object.flags&nftTableOwned != 0,
	}
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
	if object.hooked {
		if err := t.addBaseChain(object); err != nil {
			return err
		}
	}
	return rises(&t.lastChain, object.handle)
}

func (t *nftTable) addSet(object *nftObject) error {
	if !object.anonymous {
		t.addNamedSet(object)
	}
	t.noteMap(object)
	return rises(&t.lastSet, object.handle)
}

// maxVerdictMaps bounds how many maps of a table of kube-proxy's are read only to spare a second reading of its rules.
const maxVerdictMaps = 32

// noteMap notes whose elements are to be read. Those of other people's tables are not.
func (t *nftTable) noteMap(object *nftObject) {
	name, ours := string(object.name), t.isKubeProxys()
	switch {
	case ours && slices.Contains(serviceMaps(), name):
		t.serviceHeads[name] = nftSetHead{object.count, object.counted}
	case !object.isVerdictMap():
	case t.iptables != nil || ours && len(t.verdictMaps) < maxVerdictMaps:
		t.verdictMaps[name] = nil
	default:
		t.unproven = true
	}
}

func (s *nftSnapshot) addRuleTo(t *nftTable, object *nftObject) error {
	t.rules++
	s.addNativeMark(t, object)
	if t.unproven && t.iptables == nil && !holdsExtension(object.expressions) {
		return nil
	}
	rule, err := parseNFTRule(object)
	if len(rule.to) > 0 {
		t.jumps++
	}
	switch {
	case err != nil && t.iptables == nil && !holdsExtension(object.expressions):
		t.unproven = true // nothing of it is needed but its number
		return nil
	case err != nil:
		return err
	case t.iptables == nil:
		s.addNativeSets(t, object.name, &rule)
		return nil
	}
	for _, name := range rule.verdictMaps {
		t.verdictMaps[string(name)] = append(t.verdictMaps[string(name)], string(object.name))
	}
	t.iptables.addRule(t.name, object.name, &rule)
	return nil
}

// holdsExtension reports whether a rule may have a match or target of x_tables, which is how it would hold an ipset.
func holdsExtension(expressions []byte) bool {
	return bytes.Contains(expressions, []byte("match\x00")) || bytes.Contains(expressions, []byte("target\x00"))
}

// addNativeSets takes the ipsets that a rule of a native table holds. Only iptables-nft makes such rules, and only in its
// own tables; who made this one is not known.
func (s *nftSnapshot) addNativeSets(t *nftTable, chain []byte, rule *rule) {
	owner := t.owner()
	for _, index := range rule.sets {
		s.native.uses[setUse{nftFamily(t.family) + " " + t.name, string(chain), owner, index}]++
	}
}

// holdsSets reports whether any rule holds an ipset.
func (s *nftSnapshot) holdsSets() bool {
	return len(s.ipv4.uses)+len(s.ipv6.uses)+len(s.native.uses) > 0
}

// movesByItself reports whether something in the ruleset may change without a commit.
func (s *nftSnapshot) movesByItself() bool {
	for _, table := range s.tables {
		if table.movesByItself {
			return true
		}
	}
	return false
}

func (k nftTableKey) owner() kubeproxy.Owner {
	return kubeproxy.TableOwner(kubeproxy.Table{Family: nftFamily(k.family), Name: k.name})
}

func (k nftTableKey) isKubeProxys() bool { return k.owner().IsKubeProxy() }

// addsUp reports whether the kernel's own counts prove that every rule was seen, and none twice: a chain counts its rules
// and the jumps to it, from rules and from elements of maps.
func (t *nftTable) addsUp() bool {
	return !t.unproven && t.uses == t.rules+t.jumps
}
