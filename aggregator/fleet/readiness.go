package fleet

import (
	"slices"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Readiness judges the fleet, or the part of it that a filter takes, for one target, as of now. With a version, such as "1.40", it
// says whether the nodes could run that as well; what is no version gives no answer.
func (s *Store) Readiness(target offrampv1.Target, filter Filter, version string) *offrampv1.GetReadinessResponse {
	room, _ := s.standings.Get().(*[]readiness.Standing)
	defer s.standings.Put(room)
	m := s.moment(target)
	sum := s.count(m, filter, room)
	answer := sum.finish()
	answer.Steps = readiness.Steps(target, answer.GetClusterFindings(), *room)
	if version == "" {
		return answer
	}
	if target != offrampv1.Target_TARGET_NFTABLES {
		// Only the rules of this target know whether a kernel is too old for the mode that 1.40 chooses.
		s.count(s.moment(offrampv1.Target_TARGET_NFTABLES), filter, room)
	}
	answer.Upgrade, _ = readiness.Upgrade(version, m.facts, *room)
	holdBack(answer.GetUpgrade(), answer.GetIncomplete())
	return answer
}

// count adds up the nodes that a filter takes, and leaves each in standings as the rules about whole fleets see it. That is megabytes
// for a large fleet, and made anew for each answer it would be most of the garbage there is.
func (s *Store) count(m *moment, filter Filter, standings *[]readiness.Standing) *tally {
	sum, rows := newTally(s, m), s.rows(m)
	*standings = slices.Grow((*standings)[:0], len(rows))
	for _, row := range rows {
		if filter.selects(row.object) {
			*standings = append(*standings, sum.row(row))
		}
	}
	return sum
}

// cluster adds what the API says, and the verdict over all.
func (t *tally) cluster() {
	findings := readiness.AssessCluster(t.moment.facts, t.moment.target)
	accepted, _ := t.moment.acceptedOn(nil)
	readiness.AcceptFindings(findings, accepted)
	t.answer.ClusterFindings = findings
	t.answer.Unread = unread(t.moment.facts)
	t.answer.Incomplete = t.store.incomplete(t.moment)
	blocker := slices.ContainsFunc(findings, func(finding *offrampv1.Finding) bool {
		return finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER && !finding.GetUndecided() && finding.GetAccepted() == nil
	})
	switch {
	case blocker || t.answer.GetBlocked() > 0:
		t.answer.Verdict = offrampv1.Verdict_VERDICT_BLOCKED
	case t.answer.GetUnknown() > 0 || t.answer.GetNodes() == 0 || t.answer.GetIncomplete() != "":
		t.answer.Verdict = offrampv1.Verdict_VERDICT_UNKNOWN
	default:
		t.answer.Verdict = offrampv1.Verdict_VERDICT_READY
	}
}

// unread lists what of the API could not be read; one line "kubernetes" stands for all of it.
func unread(facts *offrampv1.ClusterFacts) []*offrampv1.ClusterSource {
	if facts == nil {
		return []*offrampv1.ClusterSource{{
			Kind: "kubernetes", State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "the Kubernetes API is not asked, or has not answered yet",
		}}
	}
	var left []*offrampv1.ClusterSource
	for _, source := range facts.GetSources() {
		if source.GetState() == offrampv1.SectionState_SECTION_STATE_UNREADABLE {
			left = append(left, source)
		}
	}
	return left
}
