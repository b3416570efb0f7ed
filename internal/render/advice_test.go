package render

import (
	"strings"
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Four leftovers of one clean-up have one remedy; read four times it hides what differs.
func TestSameAdviceStandsOnce(t *testing.T) {
	var p page
	p.findings([]*offrampv1.Finding{
		{Id: "leftover-chains", Remedy: "clean it up", Source: "here"},
		{Id: "leftover-ipsets", Remedy: "clean it up", Source: "here"},
		{Id: "kernel-too-old", Remedy: "upgrade", Source: "here"},
		{Id: "leftover-tables", Remedy: "clean it up", Source: "there"},
	})
	var out strings.Builder
	if err := p.flush(&out); err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(out.String()) {
		for _, mark := range []string{"leftover-chains", "leftover-ipsets", "kernel-too-old", "leftover-tables", "what to do: clean it up", "what to do: upgrade", "source: here", "source: there"} {
			if strings.Contains(line, mark) {
				order = append(order, mark)
			}
		}
	}
	want := "leftover-chains, leftover-ipsets, what to do: clean it up, source: here, " +
		"kernel-too-old, what to do: upgrade, source: here, leftover-tables, what to do: clean it up, source: there"
	if got := strings.Join(order, ", "); got != want {
		t.Errorf("order:\n got %s\nwant %s", got, want)
	}
}
