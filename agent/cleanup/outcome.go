package cleanup

import (
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	done     = offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE
	gone     = offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE
	remains  = offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS
	notTried = offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED
	unknown  = offrampv1.OperationOutcome_OPERATION_OUTCOME_UNKNOWN
)

// Words of the journal for outcomes. They are part of its format.
const (
	wordDone     = "done"
	wordGone     = "gone"
	wordRemains  = "remains"
	wordNotTried = "not-tried"
	wordUnknown  = "unknown"
)

// outcomeWord is an outcome's word in the journal.
func outcomeWord(outcome offrampv1.OperationOutcome) string {
	switch outcome {
	case done:
		return wordDone
	case gone:
		return wordGone
	case remains:
		return wordRemains
	case notTried:
		return wordNotTried
	default:
		return wordUnknown
	}
}

// outcomeOf is the outcome that a word of the journal stands for; a word of a later version is unknown.
func outcomeOf(word string) offrampv1.OperationOutcome {
	switch word {
	case wordDone:
		return done
	case wordGone:
		return gone
	case wordRemains:
		return remains
	case wordNotTried:
		return notTried
	default:
		return unknown
	}
}

// outcomeWords are the outcomes of a batch for the journal: one word when all are alike.
func outcomeWords(results []*offrampv1.OperationResult) []string {
	words := make([]string, 0, len(results))
	for _, result := range results {
		words = append(words, outcomeWord(result.GetOutcome()))
	}
	if alike := slices.Compact(slices.Clone(words)); len(alike) == 1 {
		return alike
	}
	return words
}
