package cleanup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// legacyEdit is a transaction of the plan in one table of iptables-legacy.
type legacyEdit struct {
	table      legacyTable
	operations []*offrampv1.Operation
	inventory  *inventory.Node
	tools      legacyTools
}

// do does the transaction: the program takes the whole table, changes it and gives it back under the lock, so that either
// all lines are done or none. Every rule is deleted by its own text, never a chain flushed: if somebody has changed one
// meanwhile, or added one to a chain that goes, the program refuses all of it.
func (e *legacyEdit) do(ctx context.Context) ([]offrampv1.OperationOutcome, error) {
	listing, err := e.tools.list(ctx, e.table)
	if err != nil {
		return nil, err
	}
	lines, outcomes, err := e.write(listing)
	if err != nil || len(lines) == 0 {
		return outcomes, err
	}
	if _, err := e.tools.restore(ctx, e.table, []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		return nil, fmt.Errorf("change the legacy table %s: %w", e.table.name, err)
	}
	return outcomes, nil
}

// write puts the lines together: jumps first, then the rules of all chains, then the chains.
func (e *legacyEdit) write(listing *legacyListing) (lines []string, outcomes []offrampv1.OperationOutcome, err error) {
	outcomes = slices.Repeat([]offrampv1.OperationOutcome{gone}, len(e.operations))
	var emptied, deleted []string
	for i, operation := range e.operations {
		if rule := operation.GetDeleteRule(); rule != nil && listing.take(rule.GetChain(), rule.GetRule()) {
			lines = append(lines, deletion(rule.GetRule()))
			outcomes[i] = done
		}
	}
	for i, operation := range e.operations {
		chain := operation.GetDeleteChain()
		if chain == nil || !slices.Contains(listing.chains, chain.GetChain()) {
			continue
		}
		rules := listing.rules[chain.GetChain()]
		if !knownRules(findChain(e.inventory, chain.GetSection(), chain.GetTable(), chain.GetChain()), rules) {
			return nil, nil, fmt.Errorf("%s: %w", describe(operation), errChangedChain)
		}
		for _, rule := range rules {
			emptied = append(emptied, deletion(rule))
		}
		deleted = append(deleted, "-X "+chain.GetChain())
		outcomes[i] = done
	}
	return slices.Concat(lines, emptied, deleted), outcomes, nil
}

// knownRules reports whether all lines are rules that a chain had when the plan was made, as far as can be told by where
// they lead: the same program prints them, but not every match can be compared.
func knownRules(planned *inventory.Chain, lines []string) bool {
	if planned == nil || planned.Base {
		return false
	}
	left := slices.Clone(planned.Rules)
	for _, line := range lines {
		at := slices.IndexFunc(left, func(rule inventory.Rule) bool { return leadsTo(line) == cmp.Or(rule.To, rule.Target) })
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return true
}

// leadsTo is the target of a rule's text: what follows -j or -g outside of quotes. Chains' names have no spaces.
func leadsTo(line string) string {
	quoted, words := false, []string{}
	for _, field := range strings.Fields(line) {
		if !quoted {
			words = append(words, field)
		}
		if unescapedQuotes(field)%2 == 1 {
			quoted = !quoted
		}
	}
	for i, word := range words[:max(len(words)-1, 0)] {
		if word == "-j" || word == "-g" {
			return words[i+1]
		}
	}
	return ""
}

func unescapedQuotes(text string) int {
	return strings.Count(text, `"`) - strings.Count(text, `\"`)
}

// take removes one copy of a rule from the listing; false when there is none.
func (l *legacyListing) take(chain, rule string) bool {
	at := slices.Index(l.rules[chain], rule)
	if at < 0 {
		return false
	}
	l.rules[chain] = slices.Delete(l.rules[chain], at, at+1)
	return true
}

// deletion is the line that deletes the rule that "-A …" would add.
func deletion(rule string) string { return "-D" + strings.TrimPrefix(rule, "-A") }
