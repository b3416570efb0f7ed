package collect

import (
	"cmp"
	"maps"
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// maxChainSamples and maxReferences are the bounds that facts.proto names.
	maxChainSamples = 20
	maxReferences   = 20
)

// ruleset counts the tables of one iptables backend in one family, from chains and rules as they come. All chains of a
// table have to come before its rules. It keeps no chain and no rule but samples, and the rules of nat KUBE-SERVICES.
type ruleset struct {
	family kubeproxy.Family
	// masquerade are the bits of a packet's mark that mean "masquerade" to kube-proxy.
	masquerade uint32
	tables     map[string]*ruleTable
	// Other people's rules: jumps into kube-proxy's chains, matches on its sets, uses of its mark.
	references, setMatches, marks references
	uses                          map[setUse]uint64
	// ownJumps are kube-proxy's jumps so far; duplicateJumps is how many came again.
	ownJumps       map[kubeproxy.Jump]struct{}
	duplicateJumps uint64
	dropPolicies   []string
	// shared is what nat KUBE-SERVICES holds; hasShared tells an empty chain from none.
	shared    []kubeproxy.ChainRule
	hasShared bool
}

// ruleTable counts one table.
type ruleTable struct {
	facts  *offrampv1.IptablesTable
	owners map[kubeproxy.Owner]*offrampv1.ChainCount
	// base are the chains that a hook calls: nobody's, whatever their names.
	base map[string]bool
	// current is the chain of the rule before: rules come chain by chain.
	current ruleChain
}

// ruleChain is a chain that rules are counted for.
type ruleChain struct {
	name  string
	owner kubeproxy.Owner // OwnerKernel for a base chain
}

func newRuleset(family kubeproxy.Family) *ruleset {
	return &ruleset{
		family: family, masquerade: defaultMasquerade, tables: map[string]*ruleTable{},
		uses: map[setUse]uint64{}, ownJumps: map[kubeproxy.Jump]struct{}{},
	}
}

// addTable makes a table known, also one that holds nothing.
func (s *ruleset) addTable(name string) {
	s.table(name)
}

func (s *ruleset) table(name string) *ruleTable {
	table := s.tables[name]
	if table == nil {
		table = &ruleTable{
			facts:  &offrampv1.IptablesTable{Name: printable([]byte(name))},
			owners: map[kubeproxy.Owner]*offrampv1.ChainCount{},
			base:   map[string]bool{},
		}
		s.tables[name] = table
	}
	return table
}

// addChain counts a chain. base says that a hook of the kernel calls it: a built-in chain, for iptables.
func (s *ruleset) addChain(tableName, name string, base bool) {
	table := s.table(tableName)
	table.facts.Chains++
	if base {
		table.base[name] = true
	}
	if tableName == "nat" && name == "KUBE-SERVICES" {
		s.hasShared = true
	}
	if owner := s.chainOwner(tableName, name); owner != kubeproxy.OwnerKernel {
		count := table.count(owner)
		count.Chains++
		count.Samples = addSample(count.Samples, name)
	}
}

func (s *ruleset) chainOwner(table, name string) kubeproxy.Owner {
	if s.tables[table].base[name] {
		return kubeproxy.OwnerKernel
	}
	return kubeproxy.ChainOwner(kubeproxy.Chain{Table: table, Name: name, Family: s.family})
}

// addRule counts a rule of a chain. The rule's bytes are not kept.
func (s *ruleset) addRule(tableName string, chain []byte, rule *rule) {
	table := s.table(tableName)
	if table.current.name != string(chain) {
		name := string(chain)
		table.current = ruleChain{name, s.chainOwner(tableName, name)}
	}
	from := table.current
	table.facts.Rules++
	if from.owner != kubeproxy.OwnerKernel {
		table.count(from.owner).Rules++
	}
	if tableName == "nat" && from.name == "KUBE-SERVICES" {
		s.shared = append(s.shared, kubeproxy.ChainRule{
			HasSetMatch: rule.setMatch, Comment: string(rule.comment), To: string(rule.to),
		})
	}
	s.addUses(tableName, from, rule)
	if len(rule.to) > 0 {
		s.addJump(tableName, from, rule)
	}
}

// addJump attributes a rule that jumps or goes to a chain.
func (s *ruleset) addJump(table string, from ruleChain, rule *rule) {
	to := string(rule.to)
	toOwner := s.chainOwner(table, to)
	if from.owner.IsKubeProxy() && toOwner.IsKubeProxy() {
		return // within kube-proxy's own chains: gone with them
	}
	owner := s.jumpOwner(table, from.name, rule)
	// The owner of a jump of kube-proxy's may be a mode, and that of the chain both modes; elsewhere they are the same.
	if owner != from.owner && (owner == toOwner || owner.IsKubeProxy()) && owner != kubeproxy.OwnerUnknown {
		s.tables[table].count(owner).Jumps++
	}
	switch {
	case owner.IsKubeProxy():
		s.addOwnJump(s.jump(table, from.name, rule))
	case toOwner.IsKubeProxy():
		s.references.add(1, table, from.name, to, "")
	}
}

func (s *ruleset) jump(table, from string, rule *rule) kubeproxy.Jump {
	return kubeproxy.Jump{
		Table: table, From: from, To: string(rule.to), Family: s.family,
		Comment: string(rule.comment), CtStateNew: rule.ctStateNew, OtherMatches: rule.otherMatches,
	}
}

func (s *ruleset) jumpOwner(table, from string, rule *rule) kubeproxy.Owner {
	return kubeproxy.JumpOwner(s.jump(table, from, rule))
}

// addOwnJump takes a jump of kube-proxy's from a chain that is not.
func (s *ruleset) addOwnJump(jump kubeproxy.Jump) {
	if _, again := s.ownJumps[jump]; again {
		s.duplicateJumps++
	}
	s.ownJumps[jump] = struct{}{}
}

// facts sums up. The ruleset is not to be used afterwards.
func (s *ruleset) facts() *offrampv1.IptablesFacts {
	slices.Sort(s.dropPolicies)
	facts := &offrampv1.IptablesFacts{
		SharedChainsMode:      offrampv1.ProxyMode_PROXY_MODE_NONE,
		ForeignReferences:     s.references.sorted(),
		ForeignReferenceCount: s.references.count,
		ForeignSetMatches:     s.setMatches.sorted(),
		ForeignSetMatchCount:  s.setMatches.count,
		ForeignMarks:          s.marks.sorted(),
		ForeignMarkCount:      s.marks.count,
		DuplicateJumps:        s.duplicateJumps,
		DropPolicies:          s.dropPolicies,
	}
	if s.hasShared {
		facts.SharedChainsMode = kubeproxy.SharedChainsMode(s.shared)
	}
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		table := s.tables[name]
		facts.Tables = append(facts.Tables, table.facts)
		facts.Owners = append(facts.Owners, slices.SortedFunc(maps.Values(table.owners), byOwner)...)
	}
	return facts
}

func byOwner(a, b *offrampv1.ChainCount) int { return cmp.Compare(a.GetOwner(), b.GetOwner()) }

func (t *ruleTable) count(owner kubeproxy.Owner) *offrampv1.ChainCount {
	count := t.owners[owner]
	if count == nil {
		count = &offrampv1.ChainCount{Table: t.facts.GetName(), Owner: string(owner)}
		t.owners[owner] = count
	}
	return count
}

// addSample keeps the first names in sorted order.
func addSample(samples []string, name string) []string {
	name = printable([]byte(name))
	at, _ := slices.BinarySearch(samples, name)
	if at >= maxChainSamples {
		return samples
	}
	samples = slices.Insert(samples, at, name)
	return samples[:min(len(samples), maxChainSamples)]
}
