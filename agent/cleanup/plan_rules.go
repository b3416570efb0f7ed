package cleanup

import (
	"slices"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// planRules removes jumps and chains of all leftover modes together: nf_tables takes all tables of a family at once,
// iptables-legacy one table. The shield of a link that goes follows by itself, so that it can wait for that.
func (s *scope) planRules(list *operationList) {
	for _, r := range s.rulesets {
		for _, tables := range r.batches() {
			s.planBatch(list, r, tables, s.withoutShield)
		}
		if s.linkGoes {
			s.planBatch(list, r, r.Tables, onlyShield)
		}
	}
}

// batches are the tables that change together.
func (r *rulesetScope) batches() [][]inventory.RuleTable {
	if !r.Legacy() {
		return [][]inventory.RuleTable{r.Tables}
	}
	return slices.Collect(slices.Chunk(r.Tables, 1))
}

// wanted chooses by the chain that is removed, or that the removed rule leads to.
type wanted func(table, chain string) bool

func onlyShield(table, chain string) bool { return table == "filter" && chain == shieldChain }

func (s *scope) withoutShield(table, chain string) bool {
	return !s.linkGoes || !onlyShield(table, chain)
}

// WaitsForLink reports whether an operation is to be done only once kube-ipvs0 is seen gone: the shield of the host's
// ports, and its jump. The sets that it matches are held by it.
func WaitsForLink(operation *offrampv1.Operation) bool {
	if chain := operation.GetDeleteChain(); chain != nil {
		return onlyShield(chain.GetTable(), chain.GetChain())
	}
	return operation.GetDeleteRule().GetTargetChain() == shieldChain
}

func (s *scope) planBatch(list *operationList, r *rulesetScope, tables []inventory.RuleTable, want wanted) {
	batch := make([]*offrampv1.Operation, 0, len(r.chains))
	for i := range tables {
		batch = append(batch, s.jumpsOf(r, &tables[i], want)...)
	}
	for i := range tables {
		batch = append(batch, s.chainsOf(r, &tables[i], want)...)
	}
	if len(batch) == 0 {
		return
	}
	list.begin()
	for _, operation := range batch {
		list.add(operation)
	}
}

func (s *scope) jumpsOf(r *rulesetScope, table *inventory.RuleTable, want wanted) []*offrampv1.Operation {
	var jumps []*offrampv1.Operation
	for i := range table.Chains {
		chain := &table.Chains[i]
		for j := range chain.Rules {
			rule := &chain.Rules[j]
			if s.ruleGoes(r, table.Name, chain, rule) && want(table.Name, rule.To) {
				jumps = append(jumps, s.deleteRule(r, table.Name, chain.Name, rule))
			}
		}
	}
	return jumps
}

func (s *scope) deleteRule(r *rulesetScope, table, chain string, rule *inventory.Rule) *offrampv1.Operation {
	owner := kubeproxy.JumpOwner(rule.Jump(table, chain, r.Family))
	return &offrampv1.Operation{
		Stage:    offrampv1.Stage_STAGE_RULES,
		Owner:    string(owner),
		Why:      "exactly as " + maker(owner) + " makes it",
		Releases: "chain " + rule.To + ", which it holds",
		Change: &offrampv1.Operation_DeleteRule{DeleteRule: &offrampv1.DeleteRule{
			Section: r.Section, Table: table, Chain: chain, Rule: rule.Text, Position: rule.Position, TargetChain: rule.To,
		}},
	}
}

func (s *scope) chainsOf(r *rulesetScope, table *inventory.RuleTable, want wanted) []*offrampv1.Operation {
	var chains []*offrampv1.Operation
	for i := range table.Chains {
		chain := &table.Chains[i]
		if !r.chainGoes(table.Name, chain.Name) || !want(table.Name, chain.Name) {
			continue
		}
		owner := chain.Owner(table.Name, r.Family)
		chains = append(chains, &offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_RULES,
			Owner: string(owner),
			Why:   "a chain of " + maker(owner),
			Change: &offrampv1.Operation_DeleteChain{DeleteChain: &offrampv1.DeleteChain{
				Section: r.Section, Table: table.Name, Chain: chain.Name, Rules: uint64(len(chain.Rules)),
			}},
		})
	}
	return chains
}

// maker names who made something, in a sentence.
func maker(owner kubeproxy.Owner) string {
	switch owner {
	case kubeproxy.OwnerIPVS:
		return "kube-proxy's ipvs mode"
	case kubeproxy.OwnerIPTables:
		return "kube-proxy's iptables mode"
	case kubeproxy.OwnerNFTables:
		return "kube-proxy's nftables mode"
	case kubeproxy.OwnerShared:
		return "kube-proxy's ipvs or iptables mode"
	default:
		return string(owner)
	}
}

// planTables removes kube-proxy's own tables of nf_tables, each by itself.
func (s *scope) planTables(list *operationList) {
	for _, table := range s.inv.Tables {
		owner := kubeproxy.TableOwner(table.Table)
		if !s.goes(owner) {
			continue
		}
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_RULES,
			Owner: string(owner),
			Why:   "a table of " + maker(owner),
			Change: &offrampv1.Operation_DeleteTable{DeleteTable: &offrampv1.DeleteTable{
				Family: table.Family, Name: table.Name,
			}},
		})
	}
}
