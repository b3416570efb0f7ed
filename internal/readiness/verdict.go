package readiness

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// weights is what stands against a node, for each of the two questions.
type weights struct{ ready, verify weight }

// weight is what stands against a node for one question.
type weight struct{ blockers, undecided int }

func (w *weight) add(finding *offrampv1.Finding) {
	switch {
	case finding.GetUndecided():
		w.undecided++
	case finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER:
		w.blockers++
	}
}

// verdict: a blocker weighs more than an open question, and either more than everything else.
func (w weight) verdict() offrampv1.Verdict {
	switch {
	case w.blockers > 0:
		return offrampv1.Verdict_VERDICT_BLOCKED
	case w.undecided > 0:
		return offrampv1.Verdict_VERDICT_UNKNOWN
	default:
		return offrampv1.Verdict_VERDICT_READY
	}
}

// Exit codes of ready and verify. 1 is for errors of the program itself.
const (
	exitReady     = 0
	exitBlocked   = 2
	exitLeftovers = 3
	exitUnknown   = 4
)

// ExitCode is the exit code for a verdict and what is left over: 2 blocked, else 4 could not tell, else 3 leftovers,
// else 0. It never returns 1, which is for errors and goes before all of them.
func ExitCode(verdict offrampv1.Verdict, left *offrampv1.Leftovers) int {
	switch {
	case verdict == offrampv1.Verdict_VERDICT_BLOCKED:
		return exitBlocked
	case verdict != offrampv1.Verdict_VERDICT_READY, left.GetUndecided():
		return exitUnknown
	case AnyLeft(left):
		return exitLeftovers
	default:
		return exitReady
	}
}
