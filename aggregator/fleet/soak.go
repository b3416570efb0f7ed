package fleet

import (
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// noteClean keeps since when the node is switched and clean, by the aggregator's clock: since it was seen to become so, or, where
// nobody saw that, since the mode last changed by the node's own memory, or, without one, since kube-proxy started. The caller
// holds n.mu.
func (n *node) noteClean(s *Store, facts *offrampv1.NodeFacts, before, phase offrampv1.Phase) {
	was := n.cleanSince
	switch {
	case phase != offrampv1.Phase_PHASE_DONE:
		n.cleanSince = time.Time{}
	case before == offrampv1.Phase_PHASE_SWITCHED_DIRTY || before == offrampv1.Phase_PHASE_ON_IPVS:
		n.cleanSince = s.config.Now()
	case n.cleanSince.IsZero():
		n.cleanSince = n.provenSince(facts)
	}
	if !n.cleanSince.Equal(was) {
		s.firsts.note(n.name, n.cleanSince)
	}
}

// provenSince is the latest moment since which the node itself can prove that nothing changed; zero when it can prove nothing.
func (n *node) provenSince(facts *offrampv1.NodeFacts) time.Time {
	var changed, started time.Time
	for _, section := range facts.GetSections() {
		for _, change := range section.GetStable().GetHistory().GetModeChanges() {
			changed = change.GetAt().AsTime()
		}
		if at := section.GetVolatile().GetKubeProxy().GetStartedAt(); at != nil {
			started = at.AsTime()
		}
	}
	if changed.IsZero() {
		changed = started
	}
	if changed.IsZero() {
		return changed
	}
	return changed.Add(-n.skew)
}

// soaksUntil is when a node that switched may be called done; zero when it does not soak. The caller holds n.mu.
func (n *node) soaksUntil(s *Store, m *moment, object *offrampv1.ClusterNode) time.Time {
	if n.cleanSince.IsZero() {
		return time.Time{}
	}
	soak := s.config.Soak
	if m.first[object.GetPool()].node == n.name {
		soak = s.config.SoakFirst
	}
	until := n.cleanSince.Add(soak)
	if !until.After(m.now) {
		return time.Time{}
	}
	return until
}
