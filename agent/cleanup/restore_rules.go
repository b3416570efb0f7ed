package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// chains brings back chains and jumps, a transaction for each backend and family, and each table of iptables-legacy.
func (r *restoration) chains(ctx context.Context) error {
	for i := range r.saved.Rulesets {
		rules := &r.saved.Rulesets[i]
		if rules.Legacy() {
			r.legacyChains(ctx, rules)
			continue
		}
		r.nftChains(ctx, rules)
	}
	return nil
}

// returning is what of a saved table comes back: chains that are not there, and jumps that lead to these or to chains that
// never went.
type returning struct {
	section *inventory.Ruleset
	table   string
	chains  []inventory.Chain
	jumps   []returningJump
}

type returningJump struct {
	chain string
	rule  inventory.Rule
}

// choose sorts out what of a saved table may and can come back. exists says which chains the table has now; nil when there
// is no such table.
func (r *restoration) choose(rules *inventory.Ruleset, table *inventory.RuleTable, exists map[string]bool) *returning {
	back := &returning{section: rules, table: table.Name}
	comes := map[string]bool{}
	for _, chain := range table.Chains {
		if chain.Base {
			continue
		}
		what := fmt.Sprintf("chain of %s in table %s: %s", sectionWords(rules.Section), table.Name, chain.Name)
		switch {
		case exists == nil:
			r.item(what, Failed, "its table is no longer there")
		case !restoreAllowsOwner(chain.Owner(table.Name, rules.Family), r.result.Running):
			r.item(what, NotAllowed, "the running kube-proxy makes its own")
		case exists[chain.Name]:
			r.item(what, Kept, "there is one")
		default:
			comes[chain.Name] = true
			back.chains = append(back.chains, chain)
		}
	}
	for _, chain := range table.Chains {
		for _, rule := range chain.Rules {
			leads := comes[rule.To] || r.neverWent(table, rule.To, exists) && !r.stands(rules.Section, table.Name, chain.Name, rule.Text)
			if chain.Base && leads && exists[chain.Name] && r.allowsJump(rules, table.Name, &chain, &rule) {
				back.jumps = append(back.jumps, returningJump{chain.Name, rule})
			}
		}
	}
	return back
}

// neverWent reports whether a chain is there that the backup does not hold: the clean-up took jumps of one mode to it, and
// left it to another.
func (r *restoration) neverWent(table *inventory.RuleTable, chain string, exists map[string]bool) bool {
	saved := func(c inventory.Chain) bool { return !c.Base && c.Name == chain }
	return exists[chain] && !slices.ContainsFunc(table.Chains, saved)
}

// stands reports whether a chain of the node holds a rule, by its text.
func (r *restoration) stands(section offrampv1.SectionKind, table, chain, text string) bool {
	for i := range r.node.Rulesets {
		if r.node.Rulesets[i].Section != section {
			continue
		}
		found := false
		r.node.Rulesets[i].EachChain(func(t *inventory.RuleTable, c *inventory.Chain) {
			same := func(rule inventory.Rule) bool { return rule.Text == text }
			found = found || t.Name == table && c.Name == chain && slices.ContainsFunc(c.Rules, same)
		})
		return found
	}
	return false
}

func (r *restoration) allowsJump(rules *inventory.Ruleset, table string, chain *inventory.Chain, rule *inventory.Rule) bool {
	return restoreAllowsOwner(kubeproxy.JumpOwner(rule.Jump(table, chain.Name, rules.Family)), r.result.Running)
}

// note tells how a transaction ended, for all that was in it.
func (b *returning) note(r *restoration, err error) {
	for _, chain := range b.chains {
		r.ended(fmt.Sprintf("chain of %s in table %s: %s", sectionWords(b.section.Section), b.table, chain.Name), false, err)
	}
	for _, jump := range b.jumps {
		r.ended(fmt.Sprintf("rule of %s in table %s: %s", sectionWords(b.section.Section), b.table, jump.rule.Text), false, err)
	}
}

// nftChains brings back the chains of one family of nf_tables, all of them or none.
func (r *restoration) nftChains(ctx context.Context, rules *inventory.Ruleset) {
	var all []*returning
	err := errChanged
	family := nftFamily(rules.Family)
	var tables []nftTable
	for try := 0; try < maxDumps && errors.Is(err, errChanged); try++ {
		first := len(r.result.Items)
		all, tables = all[:0], tables[:0]
		var generation uint32
		if generation, err = nftGeneration(); err != nil {
			break
		}
		for t := range rules.Tables {
			var now nftTable
			if now, err = lookNFTTable(family, rules.Tables[t].Name); err != nil {
				break
			}
			all = append(all, r.choose(rules, &rules.Tables[t], now.chains()))
			tables = append(tables, now)
		}
		if err == nil {
			batch := newNFTBatch(generation)
			if err = r.writeChains(batch, family, all, tables); err == nil {
				err = batch.commit(ctx)
			}
		}
		if errors.Is(err, errChanged) && try < maxDumps-1 {
			r.result.Items = r.result.Items[:first]
		}
	}
	for _, back := range all {
		back.note(r, err)
	}
}

// chains are the names of the chains, nil for a table without any: it is not there.
func (t nftTable) chains() map[string]bool {
	if len(t) == 0 {
		return nil
	}
	names := map[string]bool{}
	for name := range t {
		names[name] = true
	}
	return names
}

// writeChains makes all chains first, since rules lead to chains of their own table in any order.
func (r *restoration) writeChains(batch *nftBatch, family uint8, all []*returning, tables []nftTable) error {
	for _, back := range all {
		for _, chain := range back.chains {
			batch.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL, family,
				nftText(unix.NFTA_CHAIN_TABLE, back.table), nftText(unix.NFTA_CHAIN_NAME, chain.Name))
		}
	}
	for i, back := range all {
		for _, chain := range back.chains {
			for _, rule := range chain.Rules {
				if err := r.writeRule(batch, family, back.table, chain.Name, &rule, 0); err != nil {
					return err
				}
			}
		}
		for _, jump := range back.jumps {
			before := tables[i].makeRoom(jump.chain, jump.rule.Position)
			if err := r.writeRule(batch, family, back.table, jump.chain, &jump.rule, before); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeRoom is the handle of the rule that stands where a rule is to be inserted; 0 for the chain's end. Positions have to
// come in rising order.
func (t nftTable) makeRoom(chain string, position uint32) uint64 {
	at := int(position) - 1
	handles := t[chain]
	if at >= len(handles) {
		t[chain] = append(handles, 0)
		return 0
	}
	before := handles[at]
	t[chain] = slices.Insert(handles, at, 0)
	return before
}

// writeRule makes a rule from the bytes that the kernel once told, with the sets' numbers of now: before another one, or at
// the end of its chain.
func (r *restoration) writeRule(batch *nftBatch, family uint8, table, chain string, rule *inventory.Rule, before uint64) error {
	values := flatAttributes(rule.Raw)
	expressions, err := r.renumber(rule, values[unix.NFTA_RULE_EXPRESSIONS])
	if err != nil {
		return fmt.Errorf("%s: %w", rule.Text, err)
	}
	attributes := []nftAttribute{
		nftText(unix.NFTA_RULE_TABLE, table), nftText(unix.NFTA_RULE_CHAIN, chain),
		{unix.NFTA_RULE_EXPRESSIONS | unix.NLA_F_NESTED, expressions},
	}
	if userdata := values[unix.NFTA_RULE_USERDATA]; len(userdata) > 0 {
		attributes = append(attributes, nftAttribute{unix.NFTA_RULE_USERDATA, userdata})
	}
	if compat := compatOf(expressions); len(compat) > 0 {
		attributes = append(attributes, nftAttribute{unix.NFTA_RULE_COMPAT | unix.NLA_F_NESTED, compat})
	}
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_APPEND)
	if before != 0 {
		attributes = append(attributes, nftNumber64(unix.NFTA_RULE_POSITION, before))
		flags = unix.NLM_F_CREATE
	}
	batch.add(unix.NFT_MSG_NEWRULE, flags, family, attributes...)
	return nil
}
