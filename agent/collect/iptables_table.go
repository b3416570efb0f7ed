package collect

import "math/bits"

// legacyChains finds the chains of a table by where their first rule stands.
type legacyChains struct {
	byStart map[uint32]legacyChain
}

type legacyChain struct {
	name []byte
	// underflow is where a built-in chain's policy stands; a user-defined chain ends in a RETURN.
	underflow uint32
	builtIn   bool
}

// countLegacyTable counts a table in rules.
func countLegacyTable(layout *legacyLayout, name string, info *legacyInfo, blob []byte, rules *ruleset) error {
	chains := legacyChains{byStart: builtInChains(info)}
	if len(chains.byStart) != bits.OnesCount32(info.validHooks) {
		return errLegacyTable
	}
	if err := chains.findUserChains(layout, blob); err != nil {
		return err
	}
	rules.addTable(name)
	for _, chain := range chains.byStart {
		rules.addChain(name, string(chain.name), chain.builtIn)
	}
	if err := chains.countPolicies(layout, name, blob, rules); err != nil {
		return err
	}
	return chains.countRules(layout, name, blob, rules)
}

func builtInChains(info *legacyInfo) map[uint32]legacyChain {
	chains := map[uint32]legacyChain{}
	for hook, name := range hookNames() {
		if info.validHooks&(1<<hook) != 0 {
			chains[info.hookEntry[hook]] = legacyChain{[]byte(name), info.underflow[hook], true}
		}
	}
	return chains
}

// findUserChains adds the user-defined chains: each begins with an entry whose target is ERROR and has the chain's name.
func (c *legacyChains) findUserChains(layout *legacyLayout, blob []byte) error {
	size := uint32(len(blob)) //nolint:gosec // a table is at most maxLegacyTable long
	return layout.eachEntry(blob, func(entry *legacyEntry) error {
		name, ok := entry.chainHead()
		switch {
		case ok && entry.next < size:
			if _, taken := c.byStart[entry.next]; taken || len(name) == 0 {
				return errLegacyTable
			}
			c.byStart[entry.next] = legacyChain{name: name}
		case !ok && entry.next == size:
			return errLegacyTable // a table ends in an ERROR
		}
		return nil
	})
}

// countRules counts what stands in the chains.
func (c *legacyChains) countRules(layout *legacyLayout, table string, blob []byte, rules *ruleset) error {
	return c.eachRule(layout, blob, func(chain legacyChain, entry *legacyEntry) error {
		return c.countRule(table, chain, entry, rules)
	})
}

// eachRule hands out what stands in the chains. The last entry of each is no rule: the policy, or a RETURN that iptables
// puts there. It is told by the beginning of the next chain.
func (c *legacyChains) eachRule(layout *legacyLayout, blob []byte, visit func(legacyChain, *legacyEntry) error) error {
	var chain legacyChain
	var last legacyEntry
	started, inChain := 0, false
	err := layout.eachEntry(blob, func(entry *legacyEntry) error {
		next, starts := c.byStart[entry.offset]
		_, head := entry.chainHead()
		var err error
		switch {
		case inChain && (starts || head):
			err = chain.checkEnd(&last)
		case inChain:
			err = visit(chain, &last)
		case !starts && !head:
			err = errLegacyTable // an entry outside of any chain
		}
		if starts {
			chain = next
			started++
		}
		inChain, last = !head, *entry
		return err
	})
	if err == nil && started != len(c.byStart) {
		err = errLegacyTable
	}
	return err
}

// countPolicies takes the policies of the built-in chains: what each ends in.
func (c *legacyChains) countPolicies(layout *legacyLayout, table string, blob []byte, rules *ruleset) error {
	for _, chain := range c.byStart {
		if !chain.builtIn {
			continue
		}
		if int(chain.underflow) >= len(blob) {
			return errLegacyTable
		}
		entry, err := layout.entry(blob, int(chain.underflow))
		if err != nil {
			return err
		}
		if entry.drops() {
			rules.addDropPolicy(table, string(chain.name))
		}
	}
	return nil
}

// checkEnd makes sure that the entry that is not counted is no rule indeed.
func (c *legacyChain) checkEnd(entry *legacyEntry) error {
	if len(entry.targetName) > 0 || len(entry.matches) > 0 || !isZero(entry.conditions) {
		return errLegacyTable
	}
	if c.builtIn && entry.offset != c.underflow {
		return errLegacyTable
	}
	return nil
}

func (c *legacyChains) countRule(table string, chain legacyChain, entry *legacyEntry, rules *ruleset) error {
	rule, err := entry.rule()
	if err != nil {
		return err
	}
	if offset, ok := entry.jump(); ok {
		target, known := c.byStart[offset]
		if !known {
			return errLegacyTable
		}
		rule.setTarget(target.name, entry.isGoto)
	}
	rules.addRule(table, chain.name, &rule)
	return nil
}
