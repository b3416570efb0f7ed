package orders

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/cleanup"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Executor does clean-ups on this node, and undoes them.
type Executor interface {
	cleanup.Executor
	// Restore brings back what a clean-up removed.
	Restore(ctx context.Context, request cleanup.RestoreRequest) (*cleanup.RestoreResult, error)
}

// Hands do orders on this node. They add nothing to what an order says: no assertion, no override, no draining.
type Hands struct {
	Executor Executor
	// Read reads the node anew.
	Read func(context.Context) (*cleanup.Reading, error)
	// Now is the node's clock.
	Now func() time.Time
}

// Work does an order.
func (h Hands) Work(ctx context.Context, order *offrampv1.Order, progress Progress) *offrampv1.OrderResult {
	began := timestamppb.New(h.Now())
	var result *offrampv1.OrderResult
	switch order.GetKind() {
	case offrampv1.OrderKind_ORDER_KIND_PLAN:
		result = h.plan(ctx, order, progress)
	case offrampv1.OrderKind_ORDER_KIND_APPLY:
		result = h.apply(ctx, order, progress)
	case offrampv1.OrderKind_ORDER_KIND_RESTORE:
		result = h.restore(ctx, order, progress)
	default:
		result = failed(errors.New("this agent does not know how"))
	}
	result.BeganAt, result.EndedAt = began, timestamppb.New(h.Now())
	return result
}

func (h Hands) planner(target offrampv1.Target) *cleanup.Planner {
	return &cleanup.Planner{Read: h.Read, Now: h.Now, Options: cleanup.Options{Target: target}}
}

func (h Hands) plan(ctx context.Context, order *offrampv1.Order, progress Progress) *offrampv1.OrderResult {
	progress("reading the node", 0, 0)
	plan, err := h.planner(order.GetTarget()).Preview(ctx, h.Executor)
	if err != nil {
		return failed(err)
	}
	return &offrampv1.OrderResult{
		Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_DONE, Plan: plan, ExitCode: code(cleanup.PlanExit(plan)),
		Message: fmt.Sprintf("a plan of %d operations", len(plan.GetOperations())),
	}
}

func (h Hands) apply(ctx context.Context, order *offrampv1.Order, progress Progress) *offrampv1.OrderResult {
	progress("reading the node", 0, 0)
	planner := h.planner(order.GetTarget())
	var applied *offrampv1.Plan
	planAnew := func(ctx context.Context) (*offrampv1.Plan, *cleanup.Reading, error) {
		plan, reading, err := planner.Plan(ctx)
		if applied == nil {
			applied = plan
		}
		return plan, reading, err
	}
	result, err := h.Executor.Apply(ctx, cleanup.Request{
		Digest: order.GetPlanDigest(), Plan: planAnew, Origin: origin(order),
		Progress: func(p cleanup.Progress) { progress(p.Step, p.Done, p.Total) },
	})
	if result == nil {
		return failed(errors.Join(err, errNoResult))
	}
	if err != nil && result.GetError() == "" {
		result.Error = err.Error()
	}
	return applyResult(applied, result)
}

var errNoResult = errors.New("the clean-up did not begin")

// applyResult says how an apply ended. Unless all went well it has the plan, so that people see what it is about.
func applyResult(plan *offrampv1.Plan, result *offrampv1.CleanupResult) *offrampv1.OrderResult {
	answer := &offrampv1.OrderResult{
		Cleanup: result, ExitCode: code(cleanup.ResultExit(result)), Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_FAILED,
	}
	switch {
	case len(result.GetRefusedBy()) > 0:
		answer.Outcome = offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED
		answer.Message = "refused by " + result.GetRefusedBy()[0].GetId()
		isChanged := func(guard *offrampv1.GuardFinding) bool { return guard.GetId() == cleanup.GuardPlanChanged }
		if slices.ContainsFunc(result.GetRefusedBy(), isChanged) {
			answer.Plan = plan
		}
	case answer.GetExitCode() == exitDone:
		answer.Outcome = offrampv1.OrderOutcome_ORDER_OUTCOME_DONE
		answer.Message = fmt.Sprintf("%d operations done", len(result.GetOperations()))
	default:
		answer.Plan = plan
		answer.Message = fmt.Sprintf("%d operations remain", result.GetRemaining())
		if result.GetError() != "" {
			answer.Message = result.GetError()
		}
	}
	return answer
}

func (h Hands) restore(ctx context.Context, order *offrampv1.Order, progress Progress) *offrampv1.OrderResult {
	progress("reading the node", 0, 0)
	planner := h.planner(offrampv1.Target_TARGET_NFTABLES) // a plan of any target has the mode that runs
	result, err := h.Executor.Restore(ctx, cleanup.RestoreRequest{ID: order.GetBackupId(), Look: planner.Plan, Origin: origin(order)})
	if result == nil {
		return refusedRestore(errors.Join(err, errNoRestore))
	}
	return restoreResult(result, err)
}

var errNoRestore = errors.New("nothing was brought back")

func restoreResult(result *cleanup.RestoreResult, err error) *offrampv1.OrderResult {
	answer := &offrampv1.OrderResult{Message: "backup " + result.ID}
	for _, item := range result.Items {
		line := fmt.Sprintf("%s: %s", item.What, item.Outcome)
		if item.Why != "" {
			line += ": " + item.Why
		}
		answer.Restored = append(answer.Restored, line)
	}
	answer.Outcome = offrampv1.OrderOutcome_ORDER_OUTCOME_FAILED
	switch {
	case err != nil:
		answer.ExitCode, answer.Message = exitError, answer.GetMessage()+": "+err.Error()
	case result.Failed():
		answer.ExitCode = exitRemains
	default:
		answer.Outcome = offrampv1.OrderOutcome_ORDER_OUTCOME_DONE
	}
	return answer
}

// refusedRestore tells a refusal, before which nothing was changed, from an error.
func refusedRestore(err error) *offrampv1.OrderResult {
	answer := failed(err)
	switch {
	case errors.Is(err, cleanup.ErrRebooted), errors.Is(err, cleanup.ErrLocked):
		answer.Outcome, answer.ExitCode = offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, exitRefused
	case errors.Is(err, cleanup.ErrModeUnknown):
		answer.Outcome, answer.ExitCode = offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, exitUnknown
	}
	return answer
}

func failed(err error) *offrampv1.OrderResult {
	return &offrampv1.OrderResult{Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_FAILED, Message: err.Error(), ExitCode: exitError}
}

func origin(order *offrampv1.Order) cleanup.Origin {
	return cleanup.Origin{Order: order.GetId(), Caller: order.GetCaller(), TokenID: order.GetTokenId()}
}

func code(exit int) uint32 { return uint32(max(exit, 0)) } //nolint:gosec // from 0 to 4

// Journal returns the Config.Interrupted of a state folder: what the journal of its clean-ups tells of an order.
func Journal(stateDir string) func(id string) (string, *offrampv1.CleanupResult) {
	return func(id string) (string, *offrampv1.CleanupResult) {
		runs, err := cleanup.ReadJournal(stateDir)
		if err != nil {
			return fmt.Sprintf("the agent was stopped in the middle, and its journal cannot be read: %v", err), nil
		}
		for _, run := range runs {
			if run.Order == id {
				return tellRun(run)
			}
		}
		return "the agent was stopped before it changed anything", nil
	}
}

// tellRun says what became of a run whose agent could not say it.
func tellRun(run *cleanup.Run) (string, *offrampv1.CleanupResult) {
	result := &offrampv1.CleanupResult{
		Node: run.Plan.GetNode(), PlanDigest: run.Plan.GetDigest(), BeganAt: timestamppb.New(run.BeganAt), Error: run.Error,
	}
	for _, outcome := range run.Outcomes {
		result.Operations = append(result.Operations, &offrampv1.OperationResult{Outcome: outcome})
		if outcome != offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE && outcome != offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE {
			result.Remaining++
		}
	}
	if run.BackupComplete {
		result.BackupId = run.ID
	}
	when := "the agent was stopped in the middle: "
	if !run.Interrupted() {
		result.EndedAt = timestamppb.New(run.EndedAt)
		when = "it ended, and the agent was stopped before it could say so: "
	}
	return when + run.Summary(), result
}
