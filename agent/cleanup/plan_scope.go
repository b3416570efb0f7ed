package cleanup

import (
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// scope is what of one reading goes under the target, and what stays. Everything else is told from it.
type scope struct {
	facts      *offrampv1.NodeFacts
	inv        *inventory.Node
	options    Options
	mode       offrampv1.ProxyMode // the target's
	assessment *offrampv1.Assessment

	// linkGoes: kube-ipvs0 is there, kube-proxy's, and no longer used.
	linkGoes bool
	rulesets []*rulesetScope
	// sets that go, by name.
	sets map[string]bool
}

// rulesetScope is what goes of one backend and family.
type rulesetScope struct {
	*inventory.Ruleset
	chains map[chainKey]bool
}

type chainKey struct{ table, chain string }

// shieldChain keeps what listens on the wildcard address of the host from being reached on the addresses of kube-ipvs0
// (pkg/proxy/ipvs/proxier.go; kubernetes#72236): it goes after the link.
const shieldChain = "KUBE-IPVS-FILTER"

func newScope(reading *Reading, options Options, mode offrampv1.ProxyMode) *scope {
	s := &scope{
		facts: reading.Facts, inv: reading.Inventory, options: options, mode: mode,
		assessment: assess(reading, options.Target),
		sets:       map[string]bool{},
	}
	if link := s.inv.Link; link != nil {
		s.linkGoes = s.goes(kubeproxy.LinkOwner(kubeproxy.Link{Name: link.Name, Type: link.Kind}))
	}
	for i := range s.inv.Rulesets {
		s.rulesets = append(s.rulesets, s.rulesetScope(&s.inv.Rulesets[i]))
	}
	for _, set := range s.inv.Sets {
		if s.goes(kubeproxy.SetOwner(set.Set)) {
			s.sets[set.Name] = true
		}
	}
	return s
}

// goes reports whether what this owner made is to go under the target: what the target's mode does not use. That is the
// same question as what is left over, with the target for the running mode; a guard sees to it that they are the same.
func (s *scope) goes(owner kubeproxy.Owner) bool {
	return kubeproxy.Leftover(owner, s.mode) == kubeproxy.Yes
}

func (s *scope) rulesetScope(rules *inventory.Ruleset) *rulesetScope {
	r := &rulesetScope{Ruleset: rules, chains: map[chainKey]bool{}}
	rules.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
		if s.goes(chain.Owner(table.Name, rules.Family)) {
			r.chains[chainKey{table.Name, chain.Name}] = true
		}
	})
	return r
}

// chainGoes reports whether a chain is in the plan.
func (r *rulesetScope) chainGoes(table, chain string) bool { return r.chains[chainKey{table, chain}] }

// ruleGoes reports whether a rule of a base chain is in the plan by itself: it is exactly a jump that kube-proxy made, of a
// mode that the target does not use. A rule of any other chain goes with its chain or not at all.
func (s *scope) ruleGoes(r *rulesetScope, table string, chain *inventory.Chain, rule *inventory.Rule) bool {
	return chain.Base && rule.To != "" && s.goes(kubeproxy.JumpOwner(rule.Jump(table, chain.Name, r.Family)))
}

// eachStaying hands on every rule that would still be there after the plan.
func (s *scope) eachStaying(visit func(*rulesetScope, string, *inventory.Chain, *inventory.Rule)) {
	for _, r := range s.rulesets {
		r.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
			if r.chainGoes(table.Name, chain.Name) {
				return
			}
			for i := range chain.Rules {
				if rule := &chain.Rules[i]; !s.ruleGoes(r, table.Name, chain, rule) {
					visit(r, table.Name, chain, rule)
				}
			}
		})
	}
}

// anyServerGoes reports whether the plan removes a virtual server.
func (s *scope) anyServerGoes() bool {
	for i := range s.inv.Servers {
		if s.goes(s.inv.Servers[i].Owner) {
			return true
		}
	}
	return false
}
