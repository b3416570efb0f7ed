package readiness_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/readiness"
)

//nolint:gochecknoglobals // how go test takes a flag
var update = flag.Bool("update", false, "write docs/findings.md anew")

const findingsDoc = "../../docs/findings.md"

// findingsText is docs/findings.md: made from the rules, so that it cannot say anything else.
func findingsText() string {
	text := &strings.Builder{}
	text.WriteString("# Findings\n\nEvery reason that Offramp gives, by id. This file is made from the rules themselves " +
		"(`go test ./internal/readiness -run Doc -update`);\n`kubectl offramp explain ID` prints the same.\n")
	rules := readiness.Rules()
	slices.SortFunc(rules, func(a, b readiness.Rule) int { return strings.Compare(a.ID, b.ID) })
	for _, rule := range rules {
		text.WriteString("\n" + rule.Explanation())
	}
	return text.String()
}

func TestDocOfFindings(t *testing.T) {
	want := findingsText()
	if *update {
		if err := os.WriteFile(findingsDoc, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(findingsDoc)
	if err != nil || string(got) != want {
		t.Errorf("docs/findings.md is not what the rules say (%v); write it anew with -update", err)
	}
}

// The words that a rule says of its weight are those that it was seen to use, no more and no less.
func TestWeightsAreAsSaid(t *testing.T) {
	used := map[string]map[string]bool{"unexplained-virtual-servers": {"warning": true, "info": true}, "unexplained-addresses": {"warning": true, "info": true}}
	note := func(rule string, want answer) {
		if used[rule] == nil {
			used[rule] = map[string]bool{}
		}
		if want.severity != 0 {
			used[rule][word(want)] = true
		}
	}
	for _, c := range allRuleCases() {
		note(c.rule, c.want)
	}
	for _, c := range clusterCases() {
		note(c.rule, c.want)
	}
	for _, rule := range readiness.Rules() {
		for _, word := range []string{"blocker", "warning", "info", "open"} {
			if said := slices.Contains(strings.FieldsFunc(rule.Severity, notLetter), word); said != used[rule.ID][word] {
				t.Errorf("%s says %q: %s is in it %v, was seen %v", rule.ID, rule.Severity, word, said, used[rule.ID][word])
			}
		}
		if rule.Meaning == "" || rule.Remedy == "" {
			t.Errorf("%s has no meaning or no remedy", rule.ID)
		}
		if found, ok := readiness.Explain(rule.ID); !ok || found.ID != rule.ID {
			t.Errorf("%s cannot be explained", rule.ID)
		}
	}
}

func notLetter(r rune) bool { return r < 'a' || r > 'z' }

func word(want answer) string {
	if want.undecided {
		return "open"
	}
	return strings.ToLower(strings.TrimPrefix(want.severity.String(), "SEVERITY_"))
}
