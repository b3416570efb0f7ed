package kubeproxy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a name begins with may never rule out a name that its pattern matches.
func TestBeginningsOfPatterns(t *testing.T) {
	for pattern, want := range map[string][]string{
		`A-(?:B|C)|D`:        {"A-", "D"},
		`ufw6?-[a-z]{1,24}`:  {"ufw"},
		`(?:OLD_)?CILIUM_X`:  {""},
		`IN_[A-Z]+|(?:A|B)C`: {"IN_", ""},
		`x*y`:                {""},
		`ab{2}`:              {"a"},
		`a\.b`:               {"a"},
		`w-[|(\]a]+|wr`:      {"w-", "wr"},
	} {
		if got := beginnings(pattern); !slices.Equal(got, want) {
			t.Errorf("%s begins with %q, want %q", pattern, got, want)
		}
	}
	for _, table := range [][]lookAlike{foreignChains(), foreignSets(), foreignLinks(), foreignTables()} {
		for _, row := range table {
			pattern := strings.TrimSuffix(strings.TrimPrefix(row.names().String(), "^(?:"), ")$")
			literal, _ := regexp.MustCompile(pattern).LiteralPrefix()
			if len(row.begins) == 1 && !strings.HasPrefix(literal, row.begins[0]) {
				t.Errorf("%s begins with %q, and its names with %q", pattern, row.begins[0], literal)
			}
		}
	}
}
