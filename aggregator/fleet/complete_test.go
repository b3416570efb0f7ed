package fleet

import (
	"strings"
	"testing"
	"time"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	told   = v1.SectionState_SECTION_STATE_PRESENT
	untold = v1.SectionState_SECTION_STATE_UNREADABLE
)

func nodesSource(state v1.SectionState, names ...string) *v1.ClusterFacts {
	facts := &v1.ClusterFacts{Sources: []*v1.ClusterSource{{Kind: "events", State: told}, {Kind: "nodes", State: state}}}
	for _, name := range names {
		facts.Nodes = append(facts.Nodes, object(name, "blue", "linux"))
	}
	return facts
}

// A replica knows two nodes, both ready, and has listened for a while. What may it say of the fleet? Three heartbeats are 180 s, and 10 s are for the way.
func TestWhatAReplicaMaySayOfTheFleet(t *testing.T) {
	noNodes := &v1.ClusterFacts{Sources: []*v1.ClusterSource{{Kind: "events", State: told}}}
	tests := map[string]struct {
		asks       bool
		facts      *v1.ClusterFacts
		heard      time.Duration
		want       v1.Verdict
		incomplete string
		unknown    uint64
	}{
		"nobody tells the nodes, just started":      {false, nil, 0, unsure, "0 s ago it started", 0},
		"nobody tells the nodes, a second too soon": {false, nil, 189 * time.Second, unsure, "189 s ago it started", 0},
		"nobody tells the nodes, long enough":       {false, nil, 190 * time.Second, ready, "", 0},
		"the API has not answered":                  {true, nil, time.Hour, unsure, "does not tell which nodes", 0},
		"the API has not answered about nodes":      {true, noNodes, time.Hour, unsure, "does not tell which nodes", 0},
		"the API may not be asked about nodes":      {true, nodesSource(untold), time.Hour, unsure, "does not tell which nodes", 0},
		"the API does not answer any more":          {true, nodesSource(untold, "a", "b"), time.Hour, unsure, "does not tell which nodes", 0},
		"the API tells both":                        {true, nodesSource(told, "a", "b"), 0, ready, "", 0},
		"the API tells of a third":                  {true, nodesSource(told, "a", "b", "c"), time.Hour, unsure, "", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
			s := New(Config{Assess: rule, Now: c.Now, Cluster: &surroundings{facts: tt.facts}, AsksCluster: tt.asks})
			var sessions []*Session
			for _, node := range []string{"a", "b"} {
				session, _, _ := join(s, node)
				report(t, session, kernelSection(t, 6, "6.1.0"), setsSection(t, 0))
				sessions = append(sessions, session)
			}
			c.advance(tt.heard)
			for _, session := range sessions {
				report(t, session)
			}
			got := s.Readiness(nftables, Filter{}, "1.40")
			if got.GetVerdict() != tt.want || got.GetReady() != 2 || got.GetUnknown() != tt.unknown {
				t.Errorf("verdict %v with %d ready, %d unknown", got.GetVerdict(), got.GetReady(), got.GetUnknown())
			}
			for _, incomplete := range []string{got.GetIncomplete(), s.Incomplete()} {
				if (incomplete == "") != (tt.incomplete == "") || !strings.Contains(incomplete, tt.incomplete) {
					t.Errorf("incomplete %q, want %q", incomplete, tt.incomplete)
				}
			}
			if upgrade := got.GetUpgrade(); tt.want != ready && upgrade.GetVerdict() == ready {
				t.Errorf("about a version: %v", upgrade)
			}
		})
	}
}

// A replica that was cut off when it started hears of the nodes late, and not of all at once: what counts is when a new one came last.
func TestNodesThatComeLate(t *testing.T) {
	s, c := newStore(t)
	c.advance(time.Hour)
	first, _, _ := join(s, "a")
	report(t, first, kernelSection(t, 6, "6.1.0"))
	complete := func(when string, want bool) {
		t.Helper()
		report(t, first)
		got := s.Readiness(nftables, Filter{}, "")
		if (got.GetIncomplete() == "") != want || (got.GetVerdict() == ready) != want {
			t.Errorf("%s: %v", when, got)
		}
	}
	complete("the first node has just come", false)
	c.advance(2 * time.Minute)
	second, _, _ := join(s, "b")
	report(t, second, kernelSection(t, 6, "6.1.0"))
	c.advance(129 * time.Second)
	complete("two minutes after the second", false)
	second.Leave()
	again, _, _ := join(s, "b")
	report(t, again)
	c.advance(61 * time.Second)
	complete("190 s after the second, which has come again", true)
}

// A blocked node is blocked whoever is missing.
func TestIncompleteDoesNotHideABlocker(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 5, "5.10"))
	if got := s.Readiness(nftables, Filter{}, ""); got.GetVerdict() != blocked || got.GetIncomplete() == "" {
		t.Errorf("got %v", got)
	}
}

// What an answer about a version is held back by comes with its reasons.
func TestHoldBack(t *testing.T) {
	answer := &v1.UpgradeAnswer{Verdict: ready}
	holdBack(answer, "")
	if answer.GetVerdict() != ready || len(answer.GetReasons()) != 0 {
		t.Errorf("complete: %v", answer)
	}
	holdBack(answer, "because")
	if answer.GetVerdict() != unsure || len(answer.GetReasons()) != 1 {
		t.Errorf("incomplete: %v", answer)
	}
	answer = &v1.UpgradeAnswer{Verdict: blocked}
	holdBack(answer, "because")
	if answer.GetVerdict() != blocked {
		t.Errorf("blocked: %v", answer)
	}
	holdBack(nil, "because")
}
