package cleanup

import (
	"context"
	"fmt"
	"strings"

	"offramp.dev/offramp/agent/inventory"
)

// legacyChains brings back the chains of one family of iptables-legacy, each table in one go: all of it or nothing.
func (r *restoration) legacyChains(ctx context.Context, rules *inventory.Ruleset) {
	for t := range rules.Tables {
		table := legacyTable{rules.Family, rules.Tables[t].Name}
		exists, err := r.legacyExists(ctx, table)
		back := r.choose(rules, &rules.Tables[t], exists)
		if err == nil && len(back.chains) > 0 {
			_, err = r.tools.restore(ctx, table, []byte(back.lines()))
		}
		back.note(r, err)
	}
}

// legacyExists are the chains that a table has now, built-in ones included.
func (r *restoration) legacyExists(ctx context.Context, table legacyTable) (map[string]bool, error) {
	listing, err := r.tools.list(ctx, table)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{"PREROUTING": true, "INPUT": true, "FORWARD": true, "OUTPUT": true, "POSTROUTING": true}
	for _, chain := range listing.chains {
		names[chain] = true
	}
	return names, nil
}

// lines are what iptables-legacy-restore --noflush takes: chains that are not there, their rules, and jumps where they stood.
func (b *returning) lines() string {
	var text strings.Builder
	for _, chain := range b.chains {
		fmt.Fprintf(&text, ":%s - [0:0]\n", chain.Name)
	}
	for _, chain := range b.chains {
		for _, rule := range chain.Rules {
			text.WriteString(rule.Text + "\n")
		}
	}
	for _, jump := range b.jumps {
		base := inventory.Chain{Name: jump.chain, Base: true}
		text.WriteString(ruleLine(&base, &jump.rule) + "\n")
	}
	return text.String()
}
