package cleanup

import (
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Exit codes of a clean-up, beside 1 for errors.
const (
	exitDone    = 0 // done, or nothing to do
	exitRefused = 2 // a guard stands in the way
	exitRemains = 3 // something is there to do, or is left
	exitUnknown = 4 // it could not be told
)

// PlanExit is the exit code of a plan: refused by a guard, it could not be told, there is something to do, nothing is.
func PlanExit(plan *offrampv1.Plan) int {
	if code := guardExit(Blocking(plan)); code != exitDone {
		return code
	}
	if len(plan.GetOperations()) > 0 {
		return exitRemains
	}
	return exitDone
}

// ResultExit is the exit code of what an apply did.
func ResultExit(result *offrampv1.CleanupResult) int {
	if code := guardExit(result.GetRefusedBy()); code != exitDone {
		return code
	}
	ended := func(outcome offrampv1.OperationOutcome) bool {
		return slices.ContainsFunc(result.GetOperations(), func(o *offrampv1.OperationResult) bool { return o.GetOutcome() == outcome })
	}
	switch {
	case result.GetError() != "":
		return 1
	case ended(offrampv1.OperationOutcome_OPERATION_OUTCOME_UNKNOWN):
		return exitUnknown
	case result.GetRemaining() > 0, ended(offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS),
		ended(offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED):
		return exitRemains
	default:
		return exitDone
	}
}

// guardExit tells "could not tell" from "refused": only where all guards in the way are about what could not be told.
func guardExit(blocking []*offrampv1.GuardFinding) int {
	if len(blocking) == 0 {
		return exitDone
	}
	untold := []string{GuardModeUnknown, GuardSyncUnknown, GuardSectionUnread, GuardUnattributed, GuardHostUnread}
	for _, guard := range blocking {
		if !slices.Contains(untold, guard.GetId()) {
			return exitRefused
		}
	}
	return exitUnknown
}
