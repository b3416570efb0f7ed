package cleanup_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// savedRuleset reads the output of iptables-save into the exact objects. It is a reader of the tests', not the product's.
func savedRuleset(t *testing.T, text string, section offrampv1.SectionKind) inventory.Ruleset {
	t.Helper()
	out := inventory.Ruleset{Section: section, Family: kubeproxy.IPv4}
	switch section {
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6, offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6:
		out.Family = kubeproxy.IPv6
	}
	handle := uint64(0)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		handle++
		switch {
		case strings.HasPrefix(line, "*"):
			out.Tables = append(out.Tables, inventory.RuleTable{Name: line[1:]})
		case strings.HasPrefix(line, ":"):
			fields := strings.Fields(line[1:])
			table := &out.Tables[len(out.Tables)-1]
			table.Chains = append(table.Chains, inventory.Chain{
				Name: fields[0], Base: fields[1] != "-", DropPolicy: fields[1] == "DROP", Handle: handle,
			})
		case strings.HasPrefix(line, "-A "):
			addSaved(t, &out.Tables[len(out.Tables)-1], line, handle)
		}
	}
	return out
}

func addSaved(t *testing.T, table *inventory.RuleTable, line string, handle uint64) {
	t.Helper()
	chains := map[string]*inventory.Chain{}
	for i := range table.Chains {
		chains[table.Chains[i].Name] = &table.Chains[i]
	}
	from, rule := savedRule(t, words(line))
	chain := chains[from]
	if chain == nil {
		t.Fatalf("no chain for %s", line)
	}
	if chains[rule.To] == nil {
		rule.Target, rule.To = rule.To, ""
	}
	rule.Text, rule.Handle, rule.Position = line, handle, uint32(len(chain.Rules)+1)
	chain.Rules = append(chain.Rules, rule)
}

func savedRule(t *testing.T, args []string) (from string, rule inventory.Rule) {
	t.Helper()
	for i := 0; i < len(args); i++ {
		next := func() string { i++; return args[i] }
		switch args[i] {
		case "-A":
			from = next()
		case "-j":
			rule.To = next()
			return from, rule
		case "--comment":
			rule.Comment = next()
		case "--match-set":
			rule.Sets = append(rule.Sets, next())
		case "--nfacct-name":
			rule.Accounting = append(rule.Accounting, next())
		case "--ctstate":
			rule.CtStateNew = next() == "NEW"
			rule.OtherMatches = rule.OtherMatches || !rule.CtStateNew
		case "-m":
			if match := next(); match != "comment" && match != "conntrack" {
				rule.OtherMatches = true
			}
		default:
			rule.OtherMatches = true
		}
	}
	return from, rule
}

// words splits a line at blanks outside of double quotes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}
