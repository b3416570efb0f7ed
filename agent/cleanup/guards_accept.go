package cleanup

import (
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
)

// acceptsUnderDrop lists the jumps that go from a base chain that drops what nothing accepts, to a chain that accepts. Where
// the running mode has a jump of its own to a chain that accepts, in the same base chain, nothing is lost.
func (s *scope) acceptsUnderDrop() []string {
	var evidence []string
	for _, r := range s.rulesets {
		for i := range r.Tables {
			table := &r.Tables[i]
			for j := range table.Chains {
				if chain := &table.Chains[j]; chain.Base && dropsTheRest(chain) {
					evidence = append(evidence, s.lostAccepts(r, table, chain)...)
				}
			}
		}
	}
	return evidence
}

// dropsTheRest reports whether a base chain drops by policy, or by a last rule without any match.
func dropsTheRest(chain *inventory.Chain) bool {
	if chain.DropPolicy {
		return true
	}
	if len(chain.Rules) == 0 {
		return false
	}
	last := chain.Rules[len(chain.Rules)-1]
	return !last.OtherMatches && !last.CtStateNew && (last.Target == "DROP" || last.Target == "REJECT")
}

func (s *scope) lostAccepts(r *rulesetScope, table *inventory.RuleTable, base *inventory.Chain) []string {
	var lost []string
	for i := range base.Rules {
		rule := &base.Rules[i]
		if rule.To == "" || !accepts(table, rule.To) {
			continue
		}
		owner := kubeproxy.JumpOwner(rule.Jump(table.Name, base.Name, r.Family))
		switch {
		case s.ruleGoes(r, table.Name, base, rule):
			lost = append(lost, rulePlace(r, table.Name, rule)+"; "+base.Name+" drops the rest")
		case owner.IsKubeProxy() && owner != kubeproxy.OwnerShared:
			return nil
		}
	}
	return lost
}

func accepts(table *inventory.RuleTable, name string) bool {
	for i := range table.Chains {
		if table.Chains[i].Name != name {
			continue
		}
		for _, rule := range table.Chains[i].Rules {
			if rule.Target == "ACCEPT" {
				return true
			}
		}
	}
	return false
}
