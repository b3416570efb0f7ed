package audit

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Cleaner does clean-ups and undoes them.
type Cleaner interface {
	cleanup.Executor
	Restore(ctx context.Context, request cleanup.RestoreRequest) (*cleanup.RestoreResult, error)
}

// Keeper keeps entries. *Log does.
type Keeper interface {
	// Write keeps an entry for good and returns its line, also where it could not be kept.
	Write(entry *Entry) (json.RawMessage, error)
	// Entries are those that are kept, oldest first.
	Entries() ([]*Entry, error)
}

// Executor is a Cleaner of which every apply and restore is noted, however it ended.
type Executor struct {
	Cleaner
	// Log is where lines are kept.
	Log Keeper
	// Told is told of every entry, after the file; for metrics. May be nil.
	Told func(*Entry)
	// Caller is who asks on this node, where a request does not say.
	Caller string
	// Node is the name of this node, Asserted the reason of --assert-no-kube-proxy.
	Node, Asserted string
	// Output gets each line too.
	Output *slog.Logger
	Now    func() time.Time
}

// Apply implements cleanup.Executor.
func (e *Executor) Apply(ctx context.Context, request cleanup.Request) (*offrampv1.CleanupResult, error) {
	began := e.Now()
	var plan *offrampv1.Plan
	request.Plan = first(request.Plan, &plan)
	result, err := e.Cleaner.Apply(ctx, request)
	e.note(e.ofApply(plan, result, err, request.Origin), began)
	return result, err
}

// first keeps the first plan that is made.
func first(
	make func(context.Context) (*offrampv1.Plan, *cleanup.Reading, error), kept **offrampv1.Plan,
) func(context.Context) (*offrampv1.Plan, *cleanup.Reading, error) {
	return func(ctx context.Context) (*offrampv1.Plan, *cleanup.Reading, error) {
		plan, reading, err := make(ctx)
		if *kept == nil {
			*kept = plan
		}
		return plan, reading, err
	}
}

// Note notes an apply that ended before it came to the executor: refused by the plan's guards, or with nothing to do.
func (e *Executor) Note(plan *offrampv1.Plan, result *offrampv1.CleanupResult, origin cleanup.Origin, began time.Time) {
	e.note(e.ofApply(plan, result, nil, origin), began)
}

func (e *Executor) ofApply(
	plan *offrampv1.Plan, result *offrampv1.CleanupResult, err error, origin cleanup.Origin,
) *Entry {
	entry := e.entry(MethodApply, origin)
	entry.PlanDigest = hex.EncodeToString(result.GetPlanDigest())
	entry.BackupID, entry.Remaining, entry.Error = result.GetBackupId(), result.GetRemaining(), result.GetError()
	if plan != nil {
		entry.Target, entry.RunningMode = render.Word(plan.GetTarget()), render.Word(plan.GetRunningMode())
		entry.PlanDigest = cmp.Or(entry.PlanDigest, hex.EncodeToString(plan.GetDigest()))
	}
	for _, guard := range plan.GetGuards() {
		if guard.GetOverriddenBecause() != "" {
			entry.Overrides[guard.GetId()] = guard.GetOverriddenBecause()
		}
	}
	for _, guard := range result.GetRefusedBy() {
		entry.RefusedBy = append(entry.RefusedBy, guard.GetId())
	}
	for _, operation := range result.GetOperations() {
		entry.Operations[render.Word(operation.GetOutcome())]++
	}
	for _, probe := range result.GetProbes() {
		if probe.GetVerdict() == offrampv1.ProbeVerdict_PROBE_VERDICT_BROKEN {
			entry.BrokenProbes = append(entry.BrokenProbes, probe.GetProtocol()+" "+probe.GetService())
		}
	}
	entry.Outcome = outcomeOfApply(plan, result)
	if err != nil {
		entry.Outcome, entry.Error = OutcomeFailed, err.Error()
	}
	return entry
}

func outcomeOfApply(plan *offrampv1.Plan, result *offrampv1.CleanupResult) string {
	if len(result.GetRefusedBy()) > 0 {
		return OutcomeRefused
	}
	switch cleanup.ResultExit(result) {
	case 0:
		if len(plan.GetOperations()) == 0 {
			return OutcomeNothing
		}
		return OutcomeDone
	case 3:
		return OutcomeRemaining
	case 4:
		return OutcomeUnknown
	default:
		return OutcomeFailed
	}
}

// Restore undoes a clean-up.
func (e *Executor) Restore(ctx context.Context, request cleanup.RestoreRequest) (*cleanup.RestoreResult, error) {
	began := e.Now()
	result, err := e.Cleaner.Restore(ctx, request)
	entry := e.entry(MethodRestore, request.Origin)
	entry.BackupID = request.ID
	if result != nil {
		entry.BackupID, entry.RunningMode = result.ID, render.Word(result.Running)
		for _, item := range result.Items {
			entry.Operations[string(item.Outcome)]++
			if item.Outcome == cleanup.Failed {
				entry.Remaining++
			}
		}
	}
	switch {
	case errors.Is(err, cleanup.ErrRebooted), errors.Is(err, cleanup.ErrLocked), errors.Is(err, cleanup.ErrModeUnknown):
		entry.Outcome, entry.Error = OutcomeRefused, err.Error()
	case err != nil:
		entry.Outcome, entry.Error = OutcomeFailed, err.Error()
	case result.Failed():
		entry.Outcome = OutcomeRemaining
	case len(result.Items) == 0:
		entry.Outcome = OutcomeNothing
	default:
		entry.Outcome = OutcomeDone
	}
	e.note(entry, began)
	return result, err
}

func (e *Executor) entry(method string, origin cleanup.Origin) *Entry {
	return &Entry{
		Node: e.Node, Method: method, Caller: cmp.Or(origin.Caller, e.Caller), Order: origin.Order, TokenID: origin.TokenID,
		Asserted: e.Asserted, Overrides: map[string]string{}, Operations: map[string]int{},
	}
}

// note writes an entry down. Where the file cannot be written the log has it still, and says so.
func (e *Executor) note(entry *Entry, began time.Time) {
	now := e.Now()
	entry.Time, entry.Seconds = now.UTC(), now.Sub(began).Seconds()
	line, err := e.Log.Write(entry)
	if err != nil {
		e.Output.Error("the audit log cannot be written", "error", err)
	}
	e.Output.Info("audit", "entry", line)
	if e.Told != nil {
		e.Told(entry)
	}
}
