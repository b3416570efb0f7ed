package fleet

import (
	"fmt"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// underWay is how much later than others an agent may come back from the same cut: Linux waits up to 8 s between two SYNs within
// the 20 s that gRPC gives an attempt.
const underWay = 10 * time.Second

// Incomplete says why nodes may be missing from the answers of this moment, for people; "" when each node of the cluster is in them.
// A replica that has just started knows only the nodes whose agents have come back.
func (s *Store) Incomplete() string { return s.incomplete(s.moment(offrampv1.Target_TARGET_NFTABLES)) }

func (s *Store) incomplete(m *moment) string {
	s.mu.RLock()
	quiet := m.now.Sub(s.newest)
	s.mu.RUnlock()
	switch {
	case nodesTold(m.facts):
		// Those that no agent reported for are there as never seen.
		return ""
	case m.facts != nil || s.config.AsksCluster:
		return "the Kubernetes API does not tell which nodes there are"
	case quiet < s.Silence()+underWay:
		return fmt.Sprintf("nobody tells this aggregator which nodes there are, and %.0f s ago it started or heard of one that it did not know; others may follow within %.0f s",
			quiet.Seconds(), (s.Silence() + underWay).Seconds())
	}
	return ""
}

// nodesTold reports whether the API has told all nodes: not while it is asked, and not where that is forbidden.
func nodesTold(facts *offrampv1.ClusterFacts) bool {
	for _, source := range facts.GetSources() {
		if source.GetKind() != "nodes" {
			continue
		}
		switch source.GetState() {
		case offrampv1.SectionState_SECTION_STATE_PRESENT, offrampv1.SectionState_SECTION_STATE_EMPTY, offrampv1.SectionState_SECTION_STATE_ABSENT:
			return true
		}
	}
	return false
}

// holdBack keeps an answer about a version from being ready where nodes may be missing.
func holdBack(answer *offrampv1.UpgradeAnswer, incomplete string) {
	if answer.GetVerdict() == offrampv1.Verdict_VERDICT_READY && incomplete != "" {
		answer.Verdict = offrampv1.Verdict_VERDICT_UNKNOWN
		answer.Reasons = append(answer.GetReasons(), "nodes may be missing: "+incomplete)
	}
}
