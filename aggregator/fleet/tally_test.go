package fleet

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Nodes that are alike share an assessment: what is left counts on each of them.
func TestLeftoversOfNodesThatAreAlike(t *testing.T) {
	s, _, around := newCluster(t)
	around.facts = &v1.ClusterFacts{Nodes: []*v1.ClusterNode{object("a", "blue", "linux"), object("b", "blue", "linux")}}
	for _, name := range []string{"a", "b"} {
		session, _, _ := join(s, name)
		report(t, session, setsSection(t, 7))
	}
	if got := s.Readiness(nftables, Filter{}, ""); got.GetLeftovers().GetIpsets() != 14 || got.GetWithLeftovers() != 2 {
		t.Errorf("left on two nodes with 7 sets each: %v, on %d nodes", got.GetLeftovers(), got.GetWithLeftovers())
	}
}

// Nobody came or went, and the API tells something else of a node.
func TestRowsGoByTheNewestNodeObjects(t *testing.T) {
	s, _, around := newCluster(t)
	s.Readiness(nftables, Filter{}, "")
	around.facts = &v1.ClusterFacts{Nodes: []*v1.ClusterNode{object("a", "red", "linux"), object("fresh", "red", "linux")}}
	got := s.Readiness(nftables, Filter{Selector: selecting(t, "pool=red").Selector}, "")
	if got.GetNodes() != 2 || got.GetNeverSeen() != 1 {
		t.Errorf("of the pool red: %d nodes, %d never seen", got.GetNodes(), got.GetNeverSeen())
	}
}

// Two nodes share an assessment, and something else is accepted on each.
func TestAcceptancesOfNodesThatAreAlike(t *testing.T) {
	s, c, around := newCluster(t)
	for _, pool := range []string{"blue", "green"} {
		around.accepted = append(around.accepted, &v1.Acceptance{
			FindingId: "kernel-too-old", Selector: "pool=" + pool, Reason: pool, Until: timestamppb.New(c.Now().Add(time.Hour)),
		})
	}
	rows, _ := s.Summaries(nftables, Filter{}, "", 10)
	for _, row := range rows[:2] {
		if got := row.GetAssessment().GetFindings()[0].GetAccepted().GetReason(); got != row.GetPool() {
			t.Errorf("on %s of pool %s it is accepted because of %q", row.GetNode(), row.GetPool(), got)
		}
	}
}
