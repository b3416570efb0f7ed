package cleanup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Apply implements Executor.
func (e *LocalExecutor) Apply(ctx context.Context, request Request) (*offrampv1.CleanupResult, error) {
	began := e.config.Now()
	if err := makeFolder(e.config.StateDir); err != nil {
		return nil, err
	}
	held, err := takeLock(e.config.StateDir)
	if errors.Is(err, ErrLocked) {
		return &offrampv1.CleanupResult{
			PlanDigest: request.Digest, BeganAt: timestamppb.New(began), EndedAt: timestamppb.New(e.config.Now()),
			RefusedBy: []*offrampv1.GuardFinding{Finding(GuardCleanupRunning, err.Error())},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	e.holding.Store(true)
	defer e.holding.Store(false)
	result, err := e.applyLocked(ctx, request, began)
	return result, errors.Join(err, held.release())
}

// applyLocked does a plan with the lock held.
func (e *LocalExecutor) applyLocked(ctx context.Context, request Request, began time.Time) (*offrampv1.CleanupResult, error) {
	plan, reading, err := request.Plan(ctx)
	if err != nil {
		return nil, fmt.Errorf("plan anew: %w", err)
	}
	result := newResult(plan, began)
	result.RefusedBy = e.refusal(ctx, request, plan, reading)
	if len(result.GetRefusedBy()) > 0 || len(plan.GetOperations()) == 0 {
		result.EndedAt = timestamppb.New(e.config.Now())
		return result, e.settle(result)
	}
	r := &run{
		config: e.config, tools: e.tools(), request: request, plan: plan, node: reading.Inventory, result: result,
	}
	if err := e.begin(ctx, r); err != nil {
		return nil, err
	}
	r.perform(ctx)
	r.finish(ctx)
	return result, r.close()
}

// settle closes runs that were killed when nothing is left of what they had to do: killed between its last operation and the word
// that it ended, a run would be open for ever.
func (e *LocalExecutor) settle(result *offrampv1.CleanupResult) error {
	if len(result.GetRefusedBy()) > 0 {
		return nil
	}
	return closeInterrupted(e.config.StateDir, e.config.Now())
}

// newResult has no operation tried yet.
func newResult(plan *offrampv1.Plan, began time.Time) *offrampv1.CleanupResult {
	result := &offrampv1.CleanupResult{
		Node: plan.GetNode(), PlanDigest: plan.GetDigest(), BeganAt: timestamppb.New(began),
		Remaining: uint64(len(plan.GetOperations())),
	}
	for range plan.GetOperations() {
		result.Operations = append(result.Operations, &offrampv1.OperationResult{Outcome: notTried})
	}
	return result
}

// refusal are the guards that stand in the way now, whatever stood in the way when the person agreed.
func (e *LocalExecutor) refusal(
	ctx context.Context, request Request, plan *offrampv1.Plan, reading *Reading,
) []*offrampv1.GuardFinding {
	if !bytes.Equal(request.Digest, plan.GetDigest()) {
		return []*offrampv1.GuardFinding{Finding(GuardPlanChanged, fmt.Sprintf("the digest is now %x", plan.GetDigest()))}
	}
	refusing := Blocking(plan)
	if len(plan.GetOperations()) == 0 {
		return refusing
	}
	for _, guard := range e.guards(ctx, plan, reading) {
		known := func(other *offrampv1.GuardFinding) bool { return other.GetId() == guard.GetId() }
		if !slices.ContainsFunc(plan.GetGuards(), known) {
			refusing = append(refusing, guard)
		}
	}
	return refusing
}

// begin has journal and backup on the disk before anything is changed.
func (e *LocalExecutor) begin(ctx context.Context, r *run) error {
	if err := closeInterrupted(e.config.StateDir, e.config.Now()); err != nil {
		return err
	}
	if err := (retention{e.config.KeepRuns, e.config.KeepFor}).prune(e.config.StateDir, e.config.Now()); err != nil {
		return err
	}
	id, err := newRunID(e.config.Now(), e.random)
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(r.plan)
	if err != nil {
		return fmt.Errorf("write the plan to the journal: %w", err)
	}
	if r.journal, err = openJournal(e.config.StateDir, id, e.config.Now); err != nil {
		return err
	}
	err = r.journal.add(&Record{
		Kind: RecordBegan, What: "apply", Boot: r.plan.GetBootId(), Order: r.request.Order, Caller: r.request.Caller, Plan: text,
	})
	if err == nil {
		err = e.backup(ctx, r, id)
	}
	if err != nil {
		return errors.Join(err, r.journal.add(&Record{Kind: RecordEnded, Text: err.Error()}), r.journal.close())
	}
	return nil
}

func (e *LocalExecutor) backup(ctx context.Context, r *run, id string) error {
	objects, err := collectSaved(ctx, r.plan, r.node, r.tools)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	if err := writeBackup(e.config.StateDir, id, r.plan, objects, e.config.Now()); err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	r.result.BackupId = id
	return r.journal.add(&Record{Kind: RecordBackup, Text: id})
}

// run is one apply of one plan. Not for concurrent use.
type run struct {
	config  ExecutorConfig
	tools   legacyTools
	request Request
	plan    *offrampv1.Plan
	node    *inventory.Node
	result  *offrampv1.CleanupResult
	journal *journal
	flows   udpFlows
	// index has the virtual servers of indexed.
	index   serverIndex
	indexed *inventory.Node
	// table is the latest look at the IPVS table, as of tableAt.
	table   ipvsTable
	tableAt time.Time
	surfaces

	// broken is why nothing more is done: the journal cannot be written, or the context is over.
	broken error
}

func (r *run) close() error {
	r.surfaces.close()
	return r.journal.close()
}

// note writes something for people into the journal.
func (r *run) note(text string) { r.record(&Record{Kind: RecordNote, Text: text}) }

// record writes to the journal; once that fails, nothing more is changed.
func (r *run) record(record *Record) {
	if err := r.journal.add(record); err != nil {
		r.fail(err)
	}
}

// fail ends the run before the next change. The first reason is kept.
func (r *run) fail(err error) {
	if r.broken == nil {
		r.broken = err
	}
}
