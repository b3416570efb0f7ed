package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// savedRules are the rulesets of a node cut down to what a plan removes.
func savedRules(plan *offrampv1.Plan, node *inventory.Node) []inventory.Ruleset {
	going := goingRules(plan)
	var rulesets []inventory.Ruleset
	for _, rules := range node.Rulesets {
		kept := inventory.Ruleset{Section: rules.Section, Family: rules.Family}
		for _, table := range rules.Tables {
			if chains := going.chains(rules.Section, &table); len(chains) > 0 {
				kept.Tables = append(kept.Tables, inventory.RuleTable{Name: table.Name, Chains: chains})
			}
		}
		if len(kept.Tables) > 0 {
			rulesets = append(rulesets, kept)
		}
	}
	return rulesets
}

// ruleKey names a chain that goes, or with a position a rule of a chain that stays.
type ruleKey struct {
	section      offrampv1.SectionKind
	table, chain string
	position     uint32
}

type ruleKeys map[ruleKey]bool

func goingRules(plan *offrampv1.Plan) ruleKeys {
	keys := ruleKeys{}
	for _, operation := range plan.GetOperations() {
		if rule := operation.GetDeleteRule(); rule != nil {
			keys[ruleKey{rule.GetSection(), rule.GetTable(), rule.GetChain(), rule.GetPosition()}] = true
		}
		if chain := operation.GetDeleteChain(); chain != nil {
			keys[ruleKey{chain.GetSection(), chain.GetTable(), chain.GetChain(), 0}] = true
		}
	}
	return keys
}

func (k ruleKeys) chains(section offrampv1.SectionKind, table *inventory.RuleTable) []inventory.Chain {
	var chains []inventory.Chain
	for _, chain := range table.Chains {
		if k[ruleKey{section, table.Name, chain.Name, 0}] {
			chain.Rules = slices.Clone(chain.Rules)
			chains = append(chains, chain)
			continue
		}
		var rules []inventory.Rule
		for _, rule := range chain.Rules {
			if k[ruleKey{section, table.Name, chain.Name, rule.Position}] {
				rules = append(rules, rule)
			}
		}
		if len(rules) > 0 {
			chain.Rules = rules
			chains = append(chains, chain)
		}
	}
	return chains
}

// nativeText gives the rules of a legacy ruleset the text that their own program prints: it is what a restore uses. Without
// the program nothing of it can be removed either.
func nativeText(ctx context.Context, rules *inventory.Ruleset, tools legacyTools) error {
	if !rules.Legacy() {
		return nil
	}
	for t := range rules.Tables {
		table := &rules.Tables[t]
		listing, err := tools.list(ctx, legacyTable{rules.Family, table.Name})
		if errors.Is(err, errNoLegacyTool) {
			return nil
		}
		if err != nil {
			return err
		}
		for c := range table.Chains {
			if err := takeText(&table.Chains[c], listing.rules[table.Chains[c].Name]); err != nil {
				return fmt.Errorf("table %s: chain %s: %w", table.Name, table.Chains[c].Name, err)
			}
		}
	}
	return nil
}

func takeText(chain *inventory.Chain, lines []string) error {
	for i := range chain.Rules {
		rule := &chain.Rules[i]
		at := int(rule.Position) - 1
		if at < 0 || at >= len(lines) || leadsTo(lines[at]) != cmp.Or(rule.To, rule.Target) {
			return errNotInInventory
		}
		rule.Text = lines[at]
	}
	return nil
}

// ruleLines are the removed rules of a ruleset as iptables-restore --noflush takes them: chains with their rules, and jumps
// inserted where they stood.
func ruleLines(rules *inventory.Ruleset) string {
	var text strings.Builder
	for _, table := range rules.Tables {
		fmt.Fprintf(&text, "*%s\n", table.Name)
		for _, chain := range table.Chains {
			if !chain.Base {
				fmt.Fprintf(&text, ":%s - [0:0]\n", chain.Name)
			}
		}
		for _, chain := range table.Chains {
			for _, rule := range chain.Rules {
				line := ruleLine(&chain, &rule)
				if !rules.Legacy() && strings.Contains(line, notDecoded) {
					line = "# only offramp-agent can restore this: " + line
				}
				text.WriteString(line + "\n")
			}
		}
		text.WriteString("COMMIT\n")
	}
	return text.String()
}

// notDecoded stands in a rule's text for what was not understood (inventory.Rule.Text).
const notDecoded = "..."

func ruleLine(chain *inventory.Chain, rule *inventory.Rule) string {
	if !chain.Base {
		return rule.Text
	}
	return fmt.Sprintf("-I %s %d%s", chain.Name, rule.Position, strings.TrimPrefix(rule.Text, "-A "+chain.Name))
}
