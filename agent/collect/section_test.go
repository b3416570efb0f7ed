package collect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestSectionStates(t *testing.T) {
	filled := func() *offrampv1.SectionStable { return &offrampv1.SectionStable{} }
	wantState(t, absent(kindIPVS), sectionAbsent)
	wantState(t, read(kindIPVS, false, filled()), sectionPresent)
	wantState(t, read(kindIPVS, true, filled()), sectionEmpty)
	wantState(t, failed(kindIPVS, errors.New("not permitted")), sectionUnreadable)
	wantState(t, failed(kindIPVS, fmt.Errorf("the table: %w", errInconsistent)), sectionInconsistent)
	for _, section := range []*offrampv1.Section{absent(kindIPVS), failed(kindIPVS, errTorn)} {
		if section.GetKind() != kindIPVS || section.GetVolatile() == nil {
			t.Errorf("%v", section)
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 3000), strings.Repeat("ä", 1000), strings.Repeat("€", 1000)} {
		got := failed(kindIPVS, errors.New(text)).GetStable().GetError()
		if len(got) > 1024 || len(got) < 1021 || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aä", 2, "a"}, {"ä", 1, ""}, {"", 0, ""}, {"x", 0, ""}} {
		if got := cut(test.text, test.limit); got != test.want {
			t.Errorf("%q to %d is %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"KUBE-CLUSTER-IP": "KUBE-CLUSTER-IP",
		"ä€":              "ä€",
		"\xff\x00z":       "\\xff\x00z",
		`a\b`:             `a\\b`,
		"\xe2\x82":        `\xe2\x82`,
		"\uFFFD":          "\uFFFD",
		"":                "",
	} {
		if got := printable([]byte(name)); got != want {
			t.Errorf("%q is printed as %q, want %q", name, got, want)
		}
	}
}

// Two names never print alike, and what is printed can always be sent.
func FuzzPrintable(f *testing.F) {
	f.Add([]byte("\\xff"), []byte("\xff"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if string(a) != string(b) && printable(a) == printable(b) {
			t.Errorf("%q and %q both print as %q", a, b, printable(a))
		}
		if !utf8.ValidString(printable(a)) {
			t.Errorf("%q prints as %q", a, printable(a))
		}
	})
}
