package cleanup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	journalFolder = "journal"
	journalSuffix = ".jsonl"
	// maxBatch is how many operations one intent covers. They are idempotent: after a crash within a batch a new plan
	// simply holds what is still there.
	maxBatch = 256
)

// RecordKind says what a line of the journal tells.
type RecordKind string

// What is recorded, in this order; Intent and Outcome repeat. A run without Ended was interrupted.
const (
	// RecordBegan has the plan, and nothing has been changed yet.
	RecordBegan RecordKind = "began"
	// RecordBackup says that a backup is complete on the disk.
	RecordBackup RecordKind = "backup"
	// RecordIntent says that some operations are about to be done.
	RecordIntent RecordKind = "intent"
	// RecordOutcome says how they ended.
	RecordOutcome RecordKind = "outcome"
	// RecordNote is something a reader should know: a wait that ran out, routes that were put back.
	RecordNote RecordKind = "note"
	// RecordEnded has the result.
	RecordEnded RecordKind = "ended"
)

// Record is one line of the journal.
type Record struct {
	Time time.Time  `json:"time"`
	Kind RecordKind `json:"kind"`
	// What the run is: "apply" or "restore". Only in began.
	What string `json:"what,omitempty"`
	// Boot is the boot id of the kernel; only in began.
	Boot string `json:"boot,omitempty"`
	// Order is the id of the order that it was done for, Caller who gave it; only in began, and empty for what was done on the
	// node itself.
	Order  string `json:"order,omitempty"`
	Caller string `json:"caller,omitempty"`
	// Plan is the plan as JSON of offramp.v1.Plan; only in began.
	Plan json.RawMessage `json:"plan,omitempty"`
	// First and Count say which operations of the plan, counted from 0, an intent or outcome is about.
	First int `json:"first,omitempty"`
	Count int `json:"count,omitempty"`
	// Outcomes has a word for each of them ("done", "gone", "remains", "not-tried", "unknown"); one word when all are alike.
	Outcomes []string `json:"outcomes,omitempty"`
	// Text is for people: the backup's id, a note, or the error that ended it.
	Text string `json:"text,omitempty"`
}

// journal appends to the file of one run. Every record is on the disk before the next thing happens.
type journal struct {
	file *os.File
	now  func() time.Time
}

// openJournal begins the journal of a run.
func openJournal(stateDir, id string, now func() time.Time) (*journal, error) {
	dir := filepath.Join(stateDir, journalFolder)
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL | os.O_APPEND
	file, err := os.OpenFile(filepath.Join(dir, id+journalSuffix), flags, 0o600) //nolint:gosec // below the state folder
	if err != nil {
		return nil, fmt.Errorf("begin the journal: %w", err)
	}
	if err := syncFolder(dir); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &journal{file, now}, nil
}

// add writes a record to the disk. After an error the caller must not change anything more.
func (j *journal) add(record *Record) error {
	record.Time = j.now().UTC()
	line, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("write the journal to the disk: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }

// newRunID names a run and its backup: names sort by time, and two never meet.
func newRunID(now time.Time, random func([]byte) (int, error)) (string, error) {
	var tail [4]byte
	if _, err := random(tail[:]); err != nil {
		return "", fmt.Errorf("name the run: %w", err)
	}
	return fmt.Sprintf("%s-%x", now.UTC().Format(runIDLayout), tail), nil
}

const runIDLayout = "20060102T150405Z"

// isRunID tells the names of runs from others: what else lies in a state folder is left alone.
func isRunID(name string) bool {
	if len(name) != len(runIDLayout)+1+8 || name[len(runIDLayout)] != '-' {
		return false
	}
	if _, err := time.Parse(runIDLayout, name[:len(runIDLayout)]); err != nil {
		return false
	}
	for _, digit := range name[len(runIDLayout)+1:] {
		if (digit < '0' || digit > '9') && (digit < 'a' || digit > 'f') {
			return false
		}
	}
	return true
}
