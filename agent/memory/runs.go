package memory

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/cleanup"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	maxRuns      = 50
	maxWhatBytes = 200
)

// Runs implements collect.Memory. A run that ended is read once.
func (f *File) Runs() []*offrampv1.HistoryEntry {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, err := cleanup.RunIDs(f.StateDir)
	if err != nil {
		f.tell("read the clean-ups' journal", err)
		return nil
	}
	known := f.runs
	f.runs = map[string]*offrampv1.HistoryEntry{}
	var entries []*offrampv1.HistoryEntry
	var failed error
	for _, id := range ids[max(0, len(ids)-maxRuns):] {
		entry := known[id]
		if entry == nil {
			run, err := cleanup.ReadRun(f.StateDir, id)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			if entry = entryOf(run); entry == nil || run.Interrupted() {
				entries = appendNotNil(entries, entry)
				continue
			}
		}
		f.runs[id] = entry
		entries = append(entries, entry)
	}
	f.tell("read the clean-ups' journal", failed)
	return entries
}

func appendNotNil(entries []*offrampv1.HistoryEntry, entry *offrampv1.HistoryEntry) []*offrampv1.HistoryEntry {
	if entry == nil {
		return entries
	}
	return append(entries, entry)
}

// entryOf is nil for a run of which not even the beginning was written: it changed nothing.
func entryOf(run *cleanup.Run) *offrampv1.HistoryEntry {
	if run.BeganAt.IsZero() {
		return nil
	}
	entry := &offrampv1.HistoryEntry{At: timestamppb.New(run.BeganAt), Kind: "clean-up", What: "begun, and its end is not recorded", End: offrampv1.RunEnd_RUN_END_OPEN}
	if run.What == "restore" {
		entry.Kind = "restore"
	}
	if !run.Interrupted() {
		entry.At, entry.What, entry.End = timestamppb.New(run.EndedAt), outcomes(run), end(run)
	}
	return entry
}

// end is how a run ended that did.
func end(run *cleanup.Run) offrampv1.RunEnd {
	if run.Error != "" {
		return offrampv1.RunEnd_RUN_END_PARTIAL
	}
	for _, outcome := range run.Outcomes {
		if outcome != offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE && outcome != offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE {
			return offrampv1.RunEnd_RUN_END_PARTIAL
		}
	}
	return offrampv1.RunEnd_RUN_END_COMPLETE
}

// outcomes is "312 operations done, 0 remain", and what else there is to say.
func outcomes(run *cleanup.Run) string {
	if len(run.Outcomes) == 0 {
		return cut(cmp.Or(run.Error, "done"))
	}
	counts := map[offrampv1.OperationOutcome]int{}
	for _, outcome := range run.Outcomes {
		counts[outcome]++
	}
	done := counts[offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE] + counts[offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE]
	remain := counts[offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS] + counts[offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED]
	what := fmt.Sprintf("%d operations done, %d remain", done, remain)
	if unknown := len(run.Outcomes) - done - remain; unknown > 0 {
		what += fmt.Sprintf(", %d unknown", unknown)
	}
	if run.Error != "" {
		what += "; " + run.Error
	}
	return cut(what)
}

func cut(what string) string {
	return strings.ToValidUTF8(what[:min(len(what), maxWhatBytes)], "")
}
