package render

import (
	"bytes"
	"strings"
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestItems(t *testing.T) {
	hostile := []string{"add $(reboot) 10.0.0.1", "a\nb", "\x1b[2J", "<&>"}
	var text, document bytes.Buffer
	if err := Items(&text, hostile); err != nil {
		t.Fatal(err)
	}
	if err := JSONItems(&document, hostile); err != nil {
		t.Fatal(err)
	}
	if want := "add $(reboot) 10.0.0.1\na\\x0ab\n\\x1b[2J\n<&>\n"; text.String() != want {
		t.Errorf("got %q, want %q", text.String(), want)
	}
	if want := "\"add $(reboot) 10.0.0.1\"\n\"a\\nb\"\n\"\\u001b[2J\"\n\"<&>\"\n"; document.String() != want {
		t.Errorf("got %q, want %q", document.String(), want)
	}
}

func TestForeignMarksAreShown(t *testing.T) {
	var p page
	p.nftables("nftables", &offrampv1.NftablesFacts{Tables: 1, ForeignMarkCount: 50, ForeignMarks: []*offrampv1.NftMark{
		{Family: "inet", Table: "firewalld", Chain: "mangle\x1b", Sets: true}, {Family: "ip", Table: "user", Chain: "after"},
	}})
	for _, want := range []string{"about the masquerade mark: 50\n", `inet firewalld mangle\x1b: sets it`, "ip user after: matches it"} {
		if !strings.Contains(p.text.String(), want) {
			t.Errorf("no %q in\n%s", want, p.text.String())
		}
	}
}
