package fleet

import (
	"fmt"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/proto"
)

// judge assesses the node for every target that somebody asked for, drops what was said for others, and reports whether
// anything that people see came out differently. The caller holds n.mu.
func (n *node) judge(s *Store) (changed bool) {
	decoded := n.facts()
	shown := profileOf(decoded)
	if n.profile == nil || n.profile.key != shown {
		s.profiles.release(n.profile)
		n.profile, changed = s.profiles.acquire(shown, struct{}{}), true
	}
	phase := n.phase()
	for target := range n.judged {
		before := n.judged[target]
		n.judged[target] = nil
		if s.asked[target].Load() {
			n.judged[target] = s.assess(decoded, offrampv1.Target(target))
			changed = changed || before != n.judged[target]
		}
		s.assessments.release(before)
	}
	n.noteClean(s, decoded, phase, n.phase())
	n.connections = connectionsOf(decoded)
	n.behind.note(s.config.Now(), decoded)
	return changed
}

// phase is the one of the target nftables, which is always judged: phases go by the node alone. Unspecified before the first
// report. The caller holds n.mu.
func (n *node) phase() offrampv1.Phase {
	if judged := n.judged[offrampv1.Target_TARGET_NFTABLES]; judged != nil {
		return judged.value.GetPhase()
	}
	return offrampv1.Phase_PHASE_UNSPECIFIED
}

func connectionsOf(decoded *offrampv1.NodeFacts) uint64 {
	sum := uint64(0)
	for _, section := range decoded.GetSections() {
		sum += section.GetVolatile().GetIpvs().GetEstablishedConnections()
	}
	return sum
}

// assessment returns the kept assessment or makes it. It is shared: it must not be changed. The caller holds n.mu.
func (n *node) assessment(s *Store, target offrampv1.Target) *offrampv1.Assessment {
	if n.judged[target] == nil {
		n.judged[target] = s.assess(n.facts(), target)
	}
	return n.judged[target].value
}

// assess keeps equal assessments once: most nodes of a fleet are in one of a few states.
func (s *Store) assess(decoded *offrampv1.NodeFacts, target offrampv1.Target) *interned[facts.Digest, *offrampv1.Assessment] {
	assessment := s.assessSafely(decoded, target)
	assessment.Target = target
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(assessment)
	if err != nil {
		assessment = undecided(target, "the assessment cannot be encoded: "+err.Error())
		encoded, _ = proto.MarshalOptions{Deterministic: true}.Marshal(assessment)
	}
	return s.assessments.acquire(facts.Sum(encoded), assessment)
}

// assessSafely contains a fault in the rules to the node that shows it: the fleet's answer must not depend on one node.
func (s *Store) assessSafely(decoded *offrampv1.NodeFacts, target offrampv1.Target) (assessment *offrampv1.Assessment) {
	defer func() {
		if fault := recover(); fault != nil {
			s.config.Log.Error("assessment failed", "node", decoded.GetNode(), "target", target, "fault", fmt.Sprint(fault))
			assessment = undecided(target, fmt.Sprint(fault))
		}
	}()
	return s.config.Assess(decoded, target)
}

// undecided says that nothing could be told.
func undecided(target offrampv1.Target, why string) *offrampv1.Assessment {
	assessment := unknown(target)
	assessment.Findings = []*offrampv1.Finding{{
		Id: "assessment-failed", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Scope: offrampv1.Scope_SCOPE_NODE,
		Title: "the aggregator could not judge this node", Evidence: []string{why}, Undecided: true,
		Remedy: "report this as a fault of Offramp, with the output of `kubectl-offramp node NAME -o json`",
	}}
	return assessment
}

func unknown(target offrampv1.Target) *offrampv1.Assessment {
	return &offrampv1.Assessment{
		Target: target, Ready: offrampv1.Verdict_VERDICT_UNKNOWN, Verify: offrampv1.Verdict_VERDICT_UNKNOWN,
		Phase: offrampv1.Phase_PHASE_UNKNOWN, RunningMode: offrampv1.ProxyMode_PROXY_MODE_UNKNOWN,
	}
}
