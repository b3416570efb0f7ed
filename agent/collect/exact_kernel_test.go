package collect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Every rule of every capture, in either backend, is read back in the native tool's words as far as it is decoded, in its
// chain and at its place. The exact jumps, which a clean-up removes one by one, are decoded to the last letter.
func TestExactRulesAreThoseOfTheNativeTools(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore", "ipset")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables", "ip_set")
	for _, name := range captures.Names() {
		t.Run(name, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			if sets := readCapture(t, name, "ipset-save.txt"); sets != "" {
				restoreSets(t, sets)
			}
			for _, backend := range append(nftBackends(), legacyBackends()...) {
				run(t, withoutMissing(t, readCapture(t, name, backend.capture)), backend.restore)
			}
			node := readExactly(t)
			for i, save := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
				if len(node.Rulesets) != 4 {
					t.Fatalf("%d rulesets, want 4", len(node.Rulesets))
				}
				t.Run(save, func(t *testing.T) { compareRules(t, run(t, "", save), &node.Rulesets[i]) })
			}
		})
	}
}

func readExactly(t *testing.T) *inventory.Node {
	t.Helper()
	_, node := New(Config{Host: DefaultHost(), Node: "node-0"}).Exact(t.Context())
	for _, kind := range []offrampv1.SectionKind{kindIPVS, kindIPVSLink, kindIPSets, kindNFT, kindNFTIPv4,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6} {
		if problem := node.Problems[kind]; problem != "" {
			t.Fatalf("%v: %s", kind, problem)
		}
	}
	return node
}

func compareRules(t *testing.T, saved string, rules *inventory.Ruleset) {
	t.Helper()
	want := chainsOf(saved)
	got := map[string][]string{}
	rules.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
		key := fmt.Sprintf("%s %s base=%v drop=%v", table.Name, chain.Name, chain.Base, chain.DropPolicy)
		got[key] = []string{}
		for i, rule := range chain.Rules {
			if int(rule.Position) != i+1 || len(rule.Raw) == 0 {
				t.Errorf("%s: rule %d has position %d and %d raw bytes", key, i+1, rule.Position, len(rule.Raw))
			}
			got[key] = append(got[key], comparableLine(t, key, want[key], i, &rule))
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chains and rules, native (-) and exact (+):\n%s", diff)
	}
}

// comparableLine returns the native line where the rule says the same as far as it goes, else what the rule says.
func comparableLine(t *testing.T, key string, lines []string, at int, rule *inventory.Rule) string {
	t.Helper()
	if !strings.Contains(rule.Text, "...") || at >= len(lines) {
		return rule.Text
	}
	native := strings.Fields(lines[at])
	for _, set := range rule.Sets {
		if !slices.Contains(native, set) {
			t.Errorf("%s: %s matches %s", key, lines[at], set)
		}
	}
	if count := strings.Count(lines[at], "--match-set "); count != len(rule.Sets) {
		t.Errorf("%s: %d sets of %s", key, len(rule.Sets), lines[at])
	}
	to := rule.To + rule.Target
	if at := slices.Index(native, "-j"); at >= 0 && native[at+1] != to || at < 0 && to != "" {
		return rule.Text
	}
	return lines[at]
}

// chainsOf takes the output of iptables-save apart.
func chainsOf(saved string) map[string][]string {
	chains := map[string][]string{}
	keys := map[string]string{}
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			key := fmt.Sprintf("%s %s base=%v drop=%v", table, fields[0][1:], fields[1] != "-", fields[1] == "DROP")
			chains[key], keys[table+" "+fields[0][1:]] = []string{}, key
		case strings.HasPrefix(line, "-A "):
			key := keys[table+" "+fields[1]]
			chains[key] = append(chains[key], line)
		}
	}
	return chains
}
