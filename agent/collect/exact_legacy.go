package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"offramp.dev/offramp/agent/inventory"
)

// readLegacy reads the tables of iptables-legacy of one family, rule by rule.
func (e *exact) readLegacy(ctx context.Context, layout legacyLayout) error {
	tables, _, err := repeat(ctx, func(ctx context.Context) ([]inventory.RuleTable, error) {
		return e.legacyTables(ctx, &layout)
	})
	if errors.Is(err, errNoLegacy) {
		return nil
	}
	if err != nil {
		return err
	}
	e.node.Rulesets = append(e.node.Rulesets, inventory.Ruleset{Section: layout.kind, Family: layout.family, Tables: tables})
	return nil
}

func (e *exact) legacyTables(ctx context.Context, layout *legacyLayout) ([]inventory.RuleTable, error) {
	host := e.scan.scanner.config.Host
	names, err := legacyTables(host, layout)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	s, err := openLegacy(layout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.close() }()
	var tables []inventory.RuleTable
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, blob, err := s.table(name)
		if err != nil {
			return nil, err
		}
		table, err := e.legacyTable(layout, name, info, blob)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", printable([]byte(name)), err)
		}
		tables = append(tables, table)
	}
	after, err := legacyTables(host, layout)
	if err == nil && !slices.Equal(names, after) {
		err = errTorn
	}
	return tables, err
}

func (e *exact) legacyTable(layout *legacyLayout, name string, info *legacyInfo, blob []byte) (inventory.RuleTable, error) {
	// The counting reader refuses what is not a table: an entry outside of a chain, a chain without an end.
	if err := countLegacyTable(layout, name, info, blob, newRuleset(layout.family)); err != nil {
		return inventory.RuleTable{}, err
	}
	chains := legacyChains{byStart: builtInChains(info)}
	if err := chains.findUserChains(layout, blob); err != nil {
		return inventory.RuleTable{}, err
	}
	table := inventory.RuleTable{Name: name}
	var pending []byte // the entry before, which is a rule unless it ends a chain
	var last legacyEntry
	err := layout.eachEntry(blob, func(entry *legacyEntry) error {
		next, starts := chains.byStart[entry.offset]
		_, head := entry.chainHead()
		if pending != nil {
			if err := e.endOrRule(&table, &chains, &last, pending, starts || head); err != nil {
				return err
			}
		}
		if starts {
			table.Chains = append(table.Chains, inventory.Chain{Name: string(next.name), Base: next.builtIn})
		}
		pending, last = nil, *entry
		if !head {
			pending = blob[entry.offset:entry.next]
		}
		return nil
	})
	return table, err
}

// endOrRule takes an entry of the chain that was begun last: its end, or a rule.
func (e *exact) endOrRule(table *inventory.RuleTable, chains *legacyChains, entry *legacyEntry, raw []byte, end bool) error {
	chain := &table.Chains[len(table.Chains)-1]
	if end {
		chain.DropPolicy = chain.Base && legacyVerdict(entry.targetData) == "DROP"
		return nil
	}
	rule, err := e.legacyRule(chains, chain, entry)
	rule.Raw = bytes.Clone(raw)
	chain.Rules = append(chain.Rules, rule)
	return err
}

func (e *exact) legacyRule(chains *legacyChains, chain *inventory.Chain, entry *legacyEntry) (inventory.Rule, error) {
	parsed, err := entry.rule()
	if err != nil {
		return inventory.Rule{}, err
	}
	if offset, ok := entry.jump(); ok {
		parsed.setTarget(chains.byStart[offset].name, entry.isGoto)
	}
	rule := inventory.Rule{
		Position: uint32(len(chain.Rules) + 1), To: string(parsed.to), Comment: string(parsed.comment), //nolint:gosec // fewer than 2^32
		CtStateNew: parsed.ctStateNew, OtherMatches: parsed.otherMatches, Sets: e.nameSets(parsed.sets),
	}
	text := ruleText{chain: chain.Name, target: legacyVerdict(entry.targetData)}
	if len(entry.targetName) > 0 {
		text.extension(printable(entry.targetName))
	}
	if !isZero(entry.conditions) {
		text.expression()
	}
	for rest := entry.matches; len(rest) > 0; {
		name, revision, info, size, err := legacyPart(rest)
		if err != nil {
			return rule, err
		}
		text.xtMatch(name, revision, info, e.matchedSet(&exactXT{name, info, revision}))
		rest = rest[size:]
	}
	jump := "-j"
	if entry.isGoto {
		jump = "-g"
	}
	text.finish(&rule, jump)
	return rule, nil
}
