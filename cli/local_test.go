package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// What explain prints is what docs/findings.md has, and nobody needs an aggregator for it.
func TestExplain(t *testing.T) {
	document, err := os.ReadFile("../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range findingIDs() {
		got := call(t.Context(), nil, "explain", id)
		got.want(t, 0, "## "+id, "")
		if !strings.Contains(string(document), strings.TrimSpace(got.stdout)) {
			t.Errorf("docs/findings.md does not say of %s what explain does", id)
		}
	}
	all := call(t.Context(), nil, "explain")
	all.want(t, 0, "kernel-too-old\n    ", "")
	if n := strings.Count(all.stdout, "\n"); n != 2*len(findingIDs()) {
		t.Errorf("%d lines for %d findings", n, len(findingIDs()))
	}
}

func TestExplainSuggests(t *testing.T) {
	for typed, want := range map[string]string{
		"kernel-to-old": "did you mean kernel-too-old", "Kernel-Too-Old": "did you mean kernel-too-old",
		"ipvs": "did you mean", "foreign": "foreign-virtual-servers", "kernel-missing": "kernel-feature-missing", "kernl": "kernel-too-old",
		"zzzzzzzz": `"explain" without an id lists them`, "": `"explain" without an id`,
	} {
		call(t.Context(), nil, "explain", typed).want(t, 1, "", want)
	}
	call(t.Context(), nil, "explain", "a", "b").want(t, 1, "", "wants one id of a finding at most")
	for _, id := range findingIDs() {
		if near := nearFindings(id[1:]); !slices.Contains(near, id) {
			t.Errorf("%q does not suggest %s but %q", id[1:], id, near)
		}
	}
}

func TestSlips(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"flaw", "lawn", 2}} {
		if got := slips(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestTimeline(t *testing.T) {
	got := call(t.Context(), nil, "timeline")
	got.want(t, 0, "1.40 (planned) KubeProxyIPVS is off by default", "")
	for _, milestone := range readiness.Timeline() {
		if !strings.Contains(got.stdout, milestone.GetSource()[:8]) {
			t.Errorf("no source %s", milestone.GetSource())
		}
	}
	lines := call(t.Context(), nil, "timeline", "-o", "json")
	var n int
	for line := range strings.Lines(lines.stdout) {
		n++
		if err := protojson.Unmarshal([]byte(line), &offrampv1.Milestone{}); err != nil {
			t.Error(err)
		}
	}
	if n != len(readiness.Timeline()) {
		t.Errorf("%d lines", n)
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Time{
		"24h": noon.Add(24 * time.Hour), "30d": noon.AddDate(0, 0, 30), "90m": noon.Add(90 * time.Minute),
		"2027-01-31": time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC), "2027-01-31T10:00:00+01:00": time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC),
	} {
		if got, err := parseUntil(text, noon); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	if got, err := parseSince("7d", noon); err != nil || !got.Equal(noon.AddDate(0, 0, -7)) {
		t.Errorf("7d ago is %s, %v", got, err)
	}
	for _, text := range []string{"", "d", "-3d", "0d", "0s", "-1h", "soon", "2025-01-01", "99999d", "2027-13-01"} {
		if got, err := parseUntil(text, noon); err == nil {
			t.Errorf("until %q is %s", text, got)
		}
	}
	for _, text := range []string{"", "d", "0d", "-1h", "2027-01-01", "soon"} {
		if got, err := parseSince(text, noon); err == nil {
			t.Errorf("since %q is %s", text, got)
		}
	}
}
