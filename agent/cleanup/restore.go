package cleanup

import (
	"context"
	"errors"
	"fmt"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Why a restore does not begin. They are told with errors.Is.
var (
	// ErrRebooted says that the node was booted since the backup: nothing of what it saved belongs into this kernel.
	ErrRebooted = errors.New("the node was booted since the backup was made")
	// ErrModeUnknown says that it is not known which kube-proxy a restore would be under.
	ErrModeUnknown = errors.New("the running mode is unknown, so that it cannot be told what may come back")
)

// RestoreRequest says what to bring back.
type RestoreRequest struct {
	// ID of the backup; "" for the newest.
	ID string
	// Look reads the node anew: its objects, and the mode that runs there (a Plan of any target has both).
	Look func(context.Context) (*offrampv1.Plan, *Reading, error)
	Origin
}

// RestoreResult is what a restore did.
type RestoreResult struct {
	ID      string
	Running offrampv1.ProxyMode
	Items   []RestoreItem
}

// RestoreOutcome says what became of one thing.
type RestoreOutcome string

// Outcomes of a restore.
const (
	// Restored: it is back as it was.
	Restored RestoreOutcome = "restored"
	// Kept: something of that name is there, made by somebody since; it was not touched.
	Kept RestoreOutcome = "kept"
	// NotAllowed: it does not come back under the mode that runs.
	NotAllowed RestoreOutcome = "not-allowed"
	// Failed: the kernel refused.
	Failed RestoreOutcome = "failed"
)

// RestoreItem is one thing of a backup.
type RestoreItem struct {
	What    string
	Outcome RestoreOutcome
	// Why is for people; empty where it was restored.
	Why string
}

// Failed reports whether anything that may come back did not.
func (r *RestoreResult) Failed() bool {
	for _, item := range r.Items {
		if item.Outcome == Failed {
			return true
		}
	}
	return false
}

// Restore brings back what a clean-up removed, in the order nfacct objects, sets, chains, virtual servers, link. It touches
// nothing that is there: what kube-proxy or anybody else has made since stays. An error is ErrLocked, ErrBackup, ErrRebooted,
// ErrModeUnknown, or what kept it from looking; what went wrong with single things is in the result.
func (e *LocalExecutor) Restore(ctx context.Context, request RestoreRequest) (*RestoreResult, error) {
	if err := makeFolder(e.config.StateDir); err != nil {
		return nil, err
	}
	held, err := takeLock(e.config.StateDir)
	if err != nil {
		return nil, err
	}
	e.holding.Store(true)
	defer e.holding.Store(false)
	result, err := e.restoreLocked(ctx, request)
	return result, errors.Join(err, held.release())
}

func (e *LocalExecutor) restoreLocked(ctx context.Context, request RestoreRequest) (*RestoreResult, error) {
	id, err := e.backupID(request.ID)
	if err != nil {
		return nil, err
	}
	manifest, objects, err := readBackup(e.config.StateDir, id)
	if err != nil {
		return nil, err
	}
	plan, reading, err := request.Look(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the node: %w", err)
	}
	switch {
	case manifest.BootID != reading.Inventory.BootID || manifest.BootID == "":
		return nil, fmt.Errorf("%s: %w", id, ErrRebooted)
	case !restoreAllows(restoreChains, plan.GetRunningMode()):
		return nil, ErrModeUnknown
	}
	r := &restoration{
		config: e.config, tools: e.tools(), saved: objects, look: request.Look, node: reading.Inventory, origin: request.Origin,
		result: &RestoreResult{ID: id, Running: plan.GetRunningMode()},
	}
	return r.result, e.restoreRecorded(ctx, r)
}

// backupID is the id that was asked for, or that of the newest backup.
func (e *LocalExecutor) backupID(id string) (string, error) {
	if id != "" {
		return id, nil
	}
	backups, err := Backups(e.config.StateDir)
	if err == nil && len(backups) == 0 {
		err = fmt.Errorf("there is no backup: %w", ErrBackup)
	}
	if err != nil {
		return "", err
	}
	return backups[len(backups)-1].ID, nil
}

// restoreRecorded restores, with a journal of its own.
func (e *LocalExecutor) restoreRecorded(ctx context.Context, r *restoration) error {
	id, err := newRunID(e.config.Now(), e.random)
	if err != nil {
		return err
	}
	if r.journal, err = openJournal(e.config.StateDir, id, e.config.Now); err != nil {
		return err
	}
	err = r.journal.add(&Record{
		Kind: RecordBegan, What: "restore", Boot: r.node.BootID, Order: r.origin.Order, Caller: r.origin.Caller, Text: r.result.ID,
	})
	if err == nil {
		err = r.all(ctx)
	}
	ended := &Record{Kind: RecordEnded}
	if err != nil {
		ended.Text = err.Error()
	}
	return errors.Join(err, r.journal.add(ended), r.journal.close())
}
