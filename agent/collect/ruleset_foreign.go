package collect

import (
	"cmp"
	"maps"
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// references lists and counts rules of other people that refer to something of kube-proxy's.
type references struct {
	samples []*offrampv1.ForeignReference
	// count goes beyond what samples holds.
	count uint64
}

// add counts rules that are alike. Names are bytes.
func (r *references) add(rules uint64, table, from, to, set string) {
	r.count += rules
	for range min(rules, uint64(maxReferences-len(r.samples))) { //nolint:gosec // never more than maxReferences
		r.samples = append(r.samples, &offrampv1.ForeignReference{
			Table: printable([]byte(table)), FromChain: printable([]byte(from)),
			ToChain: printable([]byte(to)), Set: printable([]byte(set)),
		})
	}
}

// sorted sorts the samples.
func (r *references) sorted() []*offrampv1.ForeignReference {
	slices.SortFunc(r.samples, func(a, b *offrampv1.ForeignReference) int {
		return cmp.Or(cmp.Compare(a.GetTable(), b.GetTable()), cmp.Compare(a.GetFromChain(), b.GetFromChain()),
			cmp.Compare(a.GetToChain(), b.GetToChain()), cmp.Compare(a.GetSet(), b.GetSet()))
	})
	return r.samples
}

// setUse is where rules match or change an ipset, which rules know by its index.
type setUse struct {
	table, chain string
	owner        kubeproxy.Owner
	index        uint16
}

func compareUses(a, b setUse) int {
	return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.chain, b.chain), cmp.Compare(a.owner, b.owner),
		cmp.Compare(a.index, b.index))
}

// addUses counts what a rule refers to besides chains.
func (s *ruleset) addUses(table string, from ruleChain, rule *rule) {
	if len(rule.sets) == 0 && len(rule.marks) == 0 {
		return
	}
	owner := s.ruleOwner(table, from, rule)
	for _, index := range rule.sets {
		s.uses[setUse{table, from.name, owner, index}]++
	}
	if owner.IsKubeProxy() {
		return
	}
	if slices.ContainsFunc(rule.marks, func(use markUse) bool { return use.mentions(s.masquerade) }) {
		s.marks.add(1, table, from.name, string(rule.to), "")
	}
}

// ruleOwner is whose a rule is: its chain's owner, and in a chain that is nobody's, whoever it jumps to. kube-proxy puts
// nothing but plain jumps there.
func (s *ruleset) ruleOwner(table string, from ruleChain, rule *rule) kubeproxy.Owner {
	switch {
	case from.owner != kubeproxy.OwnerKernel:
		return from.owner
	case len(rule.to) == 0:
		return kubeproxy.Foreign("unidentified")
	default:
		return s.jumpOwner(table, from.name, rule)
	}
}

// setHolders is who holds an ipset, by its name.
type setHolders map[string][]*offrampv1.SetHolder

// nameSets tells what is known of sets by index: other people's rules that match kube-proxy's sets, and all that hold a
// set. It is errTorn when a rule holds a set that is not among the names.
func (s *ruleset) nameSets(kind offrampv1.SectionKind, names setNames) (setHolders, error) {
	holders := setHolders{}
	for _, use := range slices.SortedFunc(maps.Keys(s.uses), compareUses) {
		set, known := names[use.index]
		if !known {
			return nil, errTorn
		}
		rules := s.uses[use]
		holders[set.Name] = append(holders[set.Name], &offrampv1.SetHolder{
			Section: kind, Table: printable([]byte(use.table)), Chain: printable([]byte(use.chain)),
			Rules: rules, Owner: string(use.owner),
		})
		if kubeproxy.SetOwner(set).IsKubeProxy() && !use.owner.IsKubeProxy() {
			s.setMatches.add(rules, use.table, use.chain, "", set.Name)
		}
	}
	return holders, nil
}

// addDropPolicy takes a built-in chain whose policy is to drop.
func (s *ruleset) addDropPolicy(table, chain string) {
	s.dropPolicies = append(s.dropPolicies, printable([]byte(table+" "+chain)))
}
