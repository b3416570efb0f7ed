package cleanup

import (
	"fmt"
	"slices"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// guardRules asks who else uses what would go.
func (s *scope) guardRules(found *findings) {
	var unsynced, foreignJumps, foreignSets []string
	s.eachStaying(func(r *rulesetScope, table string, chain *inventory.Chain, rule *inventory.Rule) {
		owner := chain.Owner(table, r.Family)
		jumps := rule.To != "" && r.chainGoes(table, rule.To)
		matches := slices.ContainsFunc(rule.Sets, func(set string) bool { return s.sets[set] })
		place := rulePlace(r, table, rule)
		switch {
		case (jumps || matches) && owner.IsKubeProxy():
			unsynced = append(unsynced, place)
		case jumps:
			foreignJumps = append(foreignJumps, place)
		case matches:
			foreignSets = append(foreignSets, place)
		}
	})
	found.raise(s.unsyncedGuard(), unsynced...)
	found.raise(GuardForeignJump, foreignJumps...)
	found.raise(GuardForeignSetMatch, append(append(foreignSets, s.nativeSetMatches()...), s.unexplainedReferences()...)...)
	found.raise(GuardForeignRuleInside, s.foreignRulesInside()...)
	found.raise(GuardMixedBackends, s.mixedBackends()...)
	found.raise(GuardForeignMark, s.foreignMarks()...)
	found.raise(GuardAcceptUnderDrop, s.acceptsUnderDrop()...)
	for _, table := range s.inv.Tables {
		if table.OwnedByProcess && s.goes(kubeproxy.TableOwner(table.Table)) {
			found.raise(GuardTableOwned, "table "+table.Family+" "+table.Name)
		}
	}
}

// unsyncedGuard is what it means that a chain which stays still uses what would go: the target's mode never rewrote it.
func (s *scope) unsyncedGuard() string {
	if s.mode == offrampv1.ProxyMode_PROXY_MODE_IPVS {
		return GuardSharedJumpsAway
	}
	return GuardSharedMatchesSets
}

func (s *scope) nativeSetMatches() []string {
	var evidence []string
	for _, table := range s.inv.Tables {
		for _, set := range table.SetMatches {
			if s.sets[set] {
				evidence = append(evidence, "table "+table.Family+" "+table.Name+" matches "+set)
			}
		}
	}
	return evidence
}

// unexplainedReferences counts, for each set that goes, the rules in sight that hold it. The kernel's own count tells of
// holders that no rule is: a set of sets, a traffic-control filter.
func (s *scope) unexplainedReferences() []string {
	holders := map[string]uint32{}
	for _, r := range s.rulesets {
		r.EachChain(func(_ *inventory.RuleTable, chain *inventory.Chain) {
			for i := range chain.Rules {
				for _, set := range chain.Rules[i].Sets {
					holders[set]++
				}
			}
		})
	}
	for _, table := range s.inv.Tables {
		for _, set := range table.SetMatches {
			holders[set]++
		}
	}
	var evidence []string
	for _, set := range s.inv.Sets {
		if held := holders[set.Name]; s.sets[set.Name] && set.References > held {
			evidence = append(evidence, fmt.Sprintf("%s is held %d times, by %d rules in sight", set.Name, set.References, held))
		}
	}
	return evidence
}

// foreignRulesInside lists rules of chains that go which kube-proxy cannot have written: those that lead to somebody else's
// chain, and those of a kind that it writes nowhere in that chain. What looks like its own cannot be told from it.
func (s *scope) foreignRulesInside() []string {
	var evidence []string
	for _, r := range s.rulesets {
		r.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
			for i := range chain.Rules {
				rule := &chain.Rules[i]
				if !r.chainGoes(table.Name, chain.Name) {
					continue
				}
				if who := stranger(r, table.Name, chain.Name, rule); who != "" {
					evidence = append(evidence, rulePlace(r, table.Name, rule)+" ("+who+")")
				}
			}
		})
	}
	return evidence
}

// stranger says why a rule of a chain of kube-proxy's is not kube-proxy's; "" where it may be.
func stranger(r *rulesetScope, table, chain string, rule *inventory.Rule) string {
	if rule.To != "" {
		if owner := kubeproxy.JumpOwner(rule.Jump(table, chain, r.Family)); !owner.IsKubeProxy() {
			return string(owner)
		}
		return ""
	}
	inner := kubeproxy.InnerRule{Table: table, Chain: chain, Target: rule.Target, Comment: rule.Comment, Sets: rule.Sets}
	if !kubeproxy.MayHaveWritten(inner) {
		return "no kube-proxy writes such a rule into this chain"
	}
	return ""
}

// mixedBackends lists the chains that both backends of a family hold and that a running iptables or ipvs mode may be using
// in one of them. Which of the two it uses cannot be told for sure.
func (s *scope) mixedBackends() []string {
	if s.mode != offrampv1.ProxyMode_PROXY_MODE_IPTABLES && s.mode != offrampv1.ProxyMode_PROXY_MODE_IPVS {
		return nil
	}
	type place struct {
		family kubeproxy.Family
		chainKey
	}
	var evidence []string
	first := map[place]*rulesetScope{}
	for _, r := range s.rulesets {
		r.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
			owner := chain.Owner(table.Name, r.Family)
			if owner != kubeproxy.OwnerShared && owner != kubeproxy.OwnerIPTables {
				return
			}
			key := place{r.Family, chainKey{table.Name, chain.Name}}
			if other := first[key]; other != nil {
				evidence = append(evidence, chainPlace(other, table.Name, chain.Name)+" and "+chainPlace(r, table.Name, chain.Name))
				return
			}
			first[key] = r
		})
	}
	return evidence
}

// foreignMarks lists what other people's rules do with the mark, where the chain that masquerades by it goes.
func (s *scope) foreignMarks() []string {
	var evidence []string
	for _, r := range s.rulesets {
		if !r.chainGoes("nat", "KUBE-POSTROUTING") {
			continue
		}
		for _, mark := range s.iptablesFacts(r.Section).GetForeignMarks() {
			evidence = append(evidence, chainPlace(r, mark.GetTable(), mark.GetFromChain()))
		}
	}
	return evidence
}
