package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Cleaner does clean-ups and undoes them.
type Cleaner interface {
	cleanup.Executor
	Restore(ctx context.Context, request cleanup.RestoreRequest) (*cleanup.RestoreResult, error)
}

// Executor is a Cleaner that tries connections before the first change and after the last. Where one worked before and fails
// now although an endpoint answers, it restores what may be restored, and the result has an error that says so.
type Executor struct {
	Cleaner
	// Targets finds what to try; where it fails, nothing is tried.
	Targets func(context.Context) ([]Target, error)
	Prober  *Prober
	// Undo restores; it is Cleaner's Restore, or one that notes it too.
	Undo func(context.Context, cleanup.RestoreRequest) (*cleanup.RestoreResult, error)
	Log  *slog.Logger
}

// ErrBroke says that connections broke.
var ErrBroke = errors.New("connections that worked before the clean-up fail now, while an endpoint answers")

// Apply implements cleanup.Executor.
func (e *Executor) Apply(ctx context.Context, request cleanup.Request) (*offrampv1.CleanupResult, error) {
	targets, err := e.Targets(ctx)
	if err != nil {
		e.Log.Warn("not every Service could be looked up, so that not every connection is tried", "error", err)
	}
	before := e.Prober.Once(ctx, targets)
	result, err := e.Cleaner.Apply(ctx, request)
	if err != nil || len(result.GetRefusedBy()) > 0 || ctx.Err() != nil {
		return result, err
	}
	result.Probes = Compare(before, e.Prober.Thorough(ctx, working(before)))
	for _, probe := range Failing(result.GetProbes()) {
		e.Log.Error("a connection fails after the clean-up", "probe", Sentence(probe))
	}
	if broken := Broken(result.GetProbes()); len(broken) > 0 {
		e.undo(ctx, request, result, broken)
	}
	return result, nil
}

// working are the targets that answered. One that did not is no reason for anything, and is not tried again.
func working(before []Attempt) []Target {
	var targets []Target
	for i := range before {
		if before[i].Failed == nil {
			targets = append(targets, before[i].Target)
		}
	}
	return targets
}

// undo brings back what may come back, and tries again what broke.
func (e *Executor) undo(ctx context.Context, request cleanup.Request, result *offrampv1.CleanupResult, broken []*offrampv1.Probe) {
	words := make([]string, 0, len(broken)+2)
	for _, probe := range broken {
		words = append(words, Sentence(probe))
	}
	restored, err := e.restore(ctx, request, result)
	if err != nil {
		words = append(words, "restoring failed: "+err.Error())
	} else {
		words = append(words, "restored what may come back under running mode "+render.Word(restored.Running)+": "+counted(restored))
	}
	words = append(words, e.again(ctx, broken))
	text := ErrBroke.Error() + ": " + strings.Join(words, "; ")
	if result.GetError() != "" {
		text = result.GetError() + "; " + text
	}
	result.Error = text
	e.Log.Error("the clean-up was undone as far as may be", "error", text)
}

func (e *Executor) restore(
	ctx context.Context, request cleanup.Request, result *offrampv1.CleanupResult,
) (*cleanup.RestoreResult, error) {
	if result.GetBackupId() == "" {
		return nil, cleanup.ErrBackup
	}
	restored, err := e.Undo(ctx, cleanup.RestoreRequest{ID: result.GetBackupId(), Look: request.Plan, Origin: request.Origin})
	if restored == nil {
		return nil, errors.Join(err, cleanup.ErrBackup)
	}
	for _, item := range restored.Items {
		line := item.What + ": " + string(item.Outcome)
		if item.Why != "" {
			line += ": " + item.Why
		}
		result.Restored = append(result.Restored, line)
	}
	return restored, err
}

func counted(result *cleanup.RestoreResult) string {
	counts := map[cleanup.RestoreOutcome]int{}
	for _, item := range result.Items {
		counts[item.Outcome]++
	}
	var words []string
	for _, outcome := range []cleanup.RestoreOutcome{cleanup.Restored, cleanup.Kept, cleanup.NotAllowed, cleanup.Failed} {
		if counts[outcome] > 0 {
			words = append(words, fmt.Sprintf("%s %d", outcome, counts[outcome]))
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// again tries what broke once more, after the restore.
func (e *Executor) again(ctx context.Context, broken []*offrampv1.Probe) string {
	var targets []Target
	for _, probe := range broken {
		target, err := ParseTarget(probe.GetProtocol() + "/" + probe.GetService())
		if err == nil {
			target.Name = probe.GetName()
			targets = append(targets, target)
		}
	}
	failing := 0
	for _, attempt := range e.Prober.Thorough(ctx, targets) {
		if attempt.Failed != nil {
			failing++
		}
	}
	if failing == 0 {
		return "after that they answer again"
	}
	return fmt.Sprintf("after that %d of %d still fail", failing, len(targets))
}
