package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// span is operations of the plan that are done under one intent: one transaction, or up to maxBatch that stand alone.
type span struct{ first, count int }

// spans cuts a plan into such parts, in its order.
func spans(operations []*offrampv1.Operation) []span {
	var all []span
	for i, operation := range operations {
		if i > 0 && joins(operations[i-1], operation, all[len(all)-1].count) {
			all[len(all)-1].count++
			continue
		}
		all = append(all, span{i, 1})
	}
	return all
}

func joins(before, operation *offrampv1.Operation, count int) bool {
	switch {
	case before.GetStage() != operation.GetStage():
		return false
	case operation.GetStage() == offrampv1.Stage_STAGE_RULES:
		return before.GetTransaction() == operation.GetTransaction()
	default:
		return count < maxBatch
	}
}

// perform does the plan, part by part. An operation that fails keeps only those from being tried that have to come after it.
func (r *run) perform(ctx context.Context) {
	settled := false
	for _, part := range spans(r.plan.GetOperations()) {
		if r.stopped(ctx) {
			return
		}
		if !settled && r.plan.GetOperations()[part.first].GetStage() > offrampv1.Stage_STAGE_SOURCE {
			settled = true
			if !r.settle(ctx) {
				return
			}
		}
		r.tell(part)
		r.performPart(ctx, part)
	}
}

// tell lets whoever waits know what is done next.
func (r *run) tell(part span) {
	if r.request.Progress == nil {
		return
	}
	operations := r.plan.GetOperations()
	r.request.Progress(Progress{stageWords(operations[part.first].GetStage()), uint64(part.first), uint64(len(operations))}) //nolint:gosec // an index
}

func stageWords(stage offrampv1.Stage) string {
	switch stage {
	case offrampv1.Stage_STAGE_SOURCE:
		return "sources of routes"
	case offrampv1.Stage_STAGE_VIRTUAL_SERVERS:
		return "virtual servers"
	case offrampv1.Stage_STAGE_LINK:
		return "link"
	case offrampv1.Stage_STAGE_RULES:
		return "rules"
	case offrampv1.Stage_STAGE_IPSETS:
		return "ipsets"
	case offrampv1.Stage_STAGE_SYSCTLS:
		return "sysctls"
	default:
		return "rest"
	}
}

// stopped reports whether nothing more is to be done: somebody said so, or the journal can no longer be written.
func (r *run) stopped(ctx context.Context) bool {
	if err := ctx.Err(); err != nil {
		r.fail(fmt.Errorf("it was told to stop: %w", err))
	}
	return r.broken != nil
}

func (r *run) performPart(ctx context.Context, part span) {
	operations := r.plan.GetOperations()[part.first : part.first+part.count]
	results := r.result.GetOperations()[part.first : part.first+part.count]
	if err := r.mustWait(operations); err != nil {
		setResults(results, notTried, err)
		r.record(&Record{Kind: RecordOutcome, First: part.first, Count: part.count, Outcomes: outcomeWords(results)})
		return
	}
	r.record(&Record{Kind: RecordIntent, First: part.first, Count: part.count})
	if r.broken != nil {
		return
	}
	if operations[0].GetStage() == offrampv1.Stage_STAGE_RULES {
		r.transact(ctx, operations, results)
	} else {
		r.each(ctx, operations, results)
	}
	r.record(&Record{Kind: RecordOutcome, First: part.first, Count: part.count, Outcomes: outcomeWords(results)})
}

var (
	errServersRemain = errors.New("virtual servers that should have gone before are still there")
	errLinkRemains   = errors.New("kube-ipvs0 is still there, and this shields the host's ports")
)

// mustWait is why operations have to wait for others that did not succeed: the edges of the order, and no more than these.
func (r *run) mustWait(operations []*offrampv1.Operation) error {
	switch {
	case operations[0].GetDeleteLink() != nil:
		if r.anyLeft(offrampv1.Stage_STAGE_VIRTUAL_SERVERS) {
			return errServersRemain
		}
	case slices.ContainsFunc(operations, WaitsForLink):
		return r.linkGone()
	case slices.ContainsFunc(operations, func(o *offrampv1.Operation) bool { return o.GetDeleteRoute() != nil }):
		return r.linkGone()
	}
	return nil
}

// linkGone makes sure by looking that the link is gone.
func (r *run) linkGone() error {
	handle, err := r.openRoutes()
	if err != nil {
		return err
	}
	link, err := findIPVSLink(handle)
	if err == nil && link != nil {
		err = errLinkRemains
	}
	return err
}

// anyLeft reports whether an operation of a stage did not succeed.
func (r *run) anyLeft(stage offrampv1.Stage) bool {
	for i, operation := range r.plan.GetOperations() {
		outcome := r.result.GetOperations()[i].GetOutcome()
		if operation.GetStage() == stage && outcome != done && outcome != gone {
			return true
		}
	}
	return false
}

func setResults(results []*offrampv1.OperationResult, outcome offrampv1.OperationOutcome, err error) {
	for _, result := range results {
		setResult(result, outcome, err)
	}
}

func setResult(result *offrampv1.OperationResult, outcome offrampv1.OperationOutcome, err error) {
	result.Outcome = outcome
	result.Error = ""
	if err != nil {
		result.Error = err.Error()
	}
}
