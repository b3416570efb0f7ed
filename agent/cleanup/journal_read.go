package cleanup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Run is what the journal tells of one clean-up or restore.
type Run struct {
	// ID is the run's, and that of its backup.
	ID   string
	What string
	Boot string
	// Order is the id of the order that it was done for, if any.
	Order string
	// Plan is nil where the journal does not get as far.
	Plan           *offrampv1.Plan
	BackupComplete bool
	BeganAt        time.Time
	// EndedAt is zero for a run that was interrupted.
	EndedAt time.Time
	// Outcomes has one for each operation of the plan. What was about to be done when the run was interrupted is UNKNOWN.
	Outcomes []offrampv1.OperationOutcome
	// Notes are for people, oldest first.
	Notes []string
	// Error is what ended the run, or what is wrong with its journal.
	Error string
}

// Interrupted reports whether the run ended without saying so: it was killed, or the node lost power.
func (r *Run) Interrupted() bool { return r.EndedAt.IsZero() }

// ReadJournal returns the runs of a state folder, oldest first. A folder that is not there has none. A last line that was
// not written to its end is left out: what it was about to say did not happen before it was complete.
func ReadJournal(stateDir string) ([]*Run, error) {
	ids, err := RunIDs(stateDir)
	if err != nil {
		return nil, err
	}
	runs := make([]*Run, 0, len(ids))
	for _, id := range ids {
		run, err := ReadRun(stateDir, id)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// RunIDs lists the runs in the journal of a state folder, oldest first, without reading them.
func RunIDs(stateDir string) ([]string, error) {
	return runsIn(filepath.Join(stateDir, journalFolder), journalSuffix)
}

// ReadRun returns one run of the journal, as ReadJournal does.
func ReadRun(stateDir, id string) (*Run, error) {
	content, err := os.ReadFile(filepath.Join(stateDir, journalFolder, id+journalSuffix)) //nolint:gosec // below the state folder
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return parseRun(id, content), nil
}

// runsIn lists the runs that have a file or folder with this suffix, oldest first.
func runsIn(dir, suffix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list a state folder: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		if id, found := strings.CutSuffix(entry.Name(), suffix); found && isRunID(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func parseRun(id string, content []byte) *Run {
	run := &Run{ID: id}
	for number := 1; len(content) > 0; number++ {
		line, rest, whole := bytes.Cut(content, []byte{'\n'})
		if len(line) == 0 {
			content = rest
			continue
		}
		var record Record
		err := json.Unmarshal(line, &record)
		if err == nil && whole {
			err = run.take(&record)
		}
		if err != nil && len(rest) > 0 && rest[0] != '\n' {
			run.Error = fmt.Sprintf("line %d of the journal is damaged: %v", number, err)
		}
		content = rest
	}
	return run
}

func (r *Run) take(record *Record) error {
	switch record.Kind {
	case RecordBegan:
		return r.begin(record)
	case RecordBackup:
		r.BackupComplete = true
	case RecordIntent:
		return r.set(record, []string{wordUnknown})
	case RecordOutcome:
		return r.set(record, record.Outcomes)
	case RecordNote:
		r.Notes = append(r.Notes, record.Text)
	case RecordEnded:
		r.EndedAt = record.Time
		r.Error = record.Text
	}
	return nil // a kind of a later version says nothing to this one
}

func (r *Run) begin(record *Record) error {
	r.What, r.Boot, r.Order, r.BeganAt = record.What, record.Boot, record.Order, record.Time
	if len(record.Plan) == 0 {
		return nil
	}
	plan := &offrampv1.Plan{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(record.Plan, plan); err != nil {
		return err
	}
	r.Plan = plan
	r.Outcomes = make([]offrampv1.OperationOutcome, len(plan.GetOperations()))
	for i := range r.Outcomes {
		r.Outcomes[i] = notTried
	}
	return nil
}

var errNotOfThePlan = errors.New("it is about operations that the plan does not have")

// set notes the outcomes of some operations.
func (r *Run) set(record *Record, words []string) error {
	if record.First < 0 || record.First > len(r.Outcomes) || record.Count < 0 || record.Count > len(r.Outcomes)-record.First || len(words) != 1 && len(words) != record.Count {
		return errNotOfThePlan
	}
	for i := range record.Count {
		r.Outcomes[record.First+i] = outcomeOf(words[min(i, len(words)-1)])
	}
	return nil
}
