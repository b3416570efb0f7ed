package render

import (
	"fmt"
	"io"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Result writes what an apply of this plan did.
func Result(w io.Writer, plan *offrampv1.Plan, result *offrampv1.CleanupResult) error {
	var p page
	p.line(0, "Clean-up of node %s for target %s: %s", orUnknown(result.GetNode()), Word(plan.GetTarget()), resultWords(result))
	p.line(2, "plan: %s", shortDigest(result.GetPlanDigest()))
	p.field(2, "backup", result.GetBackupId())
	p.field(2, "error", result.GetError())
	if len(result.GetRefusedBy()) == 0 {
		p.outcomes(plan.GetOperations(), result.GetOperations())
	}
	p.guards(result.GetRefusedBy())
	p.probes(result)
	return p.flush(w)
}

// probes says what became of connections, loudest first, and what was restored on account of them.
func (p *page) probes(result *offrampv1.CleanupResult) {
	for _, probe := range result.GetProbes() {
		word := Word(probe.GetVerdict())
		if probe.GetVerdict() == offrampv1.ProbeVerdict_PROBE_VERDICT_BROKEN {
			word = "BROKEN"
		}
		p.line(2, "connection %s %s %s: %s", probe.GetName(), probe.GetProtocol(), probe.GetService(), word)
	}
	for _, line := range result.GetRestored() {
		p.line(2, "restored: %s", line)
	}
}

func resultWords(result *offrampv1.CleanupResult) string {
	switch {
	case len(result.GetRefusedBy()) > 0:
		return "refused, nothing was changed"
	case result.GetError() != "":
		return "failed"
	case result.GetRemaining() > 0:
		return "applied, " + count(result.GetRemaining(), "operation") + " would still be to do"
	case len(result.GetOperations()) == 0:
		return "nothing to do"
	default:
		return "done"
	}
}

// outcomes counts how operations ended, and names those that did not end well.
func (p *page) outcomes(operations []*offrampv1.Operation, results []*offrampv1.OperationResult) {
	counts := map[offrampv1.OperationOutcome]uint64{}
	for _, result := range results {
		counts[result.GetOutcome()]++
	}
	for _, outcome := range []offrampv1.OperationOutcome{
		offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE, offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE,
		offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS, offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED,
		offrampv1.OperationOutcome_OPERATION_OUTCOME_UNKNOWN,
	} {
		if counts[outcome] > 0 {
			p.line(2, "%s: %s", outcomeWords(outcome), number(counts[outcome]))
		}
	}
	for i, result := range results {
		switch result.GetOutcome() {
		case offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE, offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE:
			continue
		}
		what := fmt.Sprintf("operation %d", i+1)
		if i < len(operations) {
			what = operationWords(operations[i])
		}
		p.line(2, "- %s: %s%s", what, outcomeWords(result.GetOutcome()), parentheses(Clean(result.GetError())))
	}
}

func outcomeWords(outcome offrampv1.OperationOutcome) string {
	switch outcome {
	case offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE:
		return "done"
	case offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE:
		return "gone already"
	case offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS:
		return "still there"
	case offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED:
		return "not tried"
	default:
		return "could not be told"
	}
}
