package cleanup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Interrupted returns the runs that never said how they ended, oldest first: they were killed, or the node lost power.
func Interrupted(stateDir string) ([]*Run, error) {
	runs, err := ReadJournal(stateDir)
	if err != nil {
		return nil, err
	}
	var open []*Run
	for _, run := range runs {
		if run.Interrupted() {
			open = append(open, run)
		}
	}
	return open, nil
}

// Summary says in a few words what happened in a run.
func (r *Run) Summary() string {
	counts := map[string]int{}
	for _, outcome := range r.Outcomes {
		counts[outcomeWord(outcome)]++
	}
	text := fmt.Sprintf("%d of %d operations done, %d not known, %d not tried",
		counts[wordDone]+counts[wordGone], len(r.Outcomes), counts[wordUnknown], counts[wordNotTried])
	if !r.BackupComplete {
		text += ", before its backup was complete"
	}
	return text
}

// closeInterrupted writes under each interrupted run that it was, so that it is told once. Call it with the lock held: no
// run is still going then.
func closeInterrupted(stateDir string, now time.Time) error {
	open, err := Interrupted(stateDir)
	if err != nil {
		return err
	}
	for _, run := range open {
		record := &Record{Time: now.UTC(), Kind: RecordEnded, Text: "interrupted: " + run.Summary()}
		if err := appendRecord(filepath.Join(stateDir, journalFolder, run.ID+journalSuffix), record); err != nil {
			return fmt.Errorf("close the journal of an interrupted run: %w", err)
		}
	}
	return nil
}

// appendRecord adds a line, also after one that was not written to its end.
func appendRecord(path string, record *Record) error {
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) //nolint:gosec // below the state folder
	if err != nil {
		return err
	}
	_, err = file.WriteString("\n" + string(line) + "\n")
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
