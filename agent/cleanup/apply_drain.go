package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// drainPause is how often connections are counted while they are waited for.
const drainPause = 500 * time.Millisecond

// settle closes or waits for what would be cut, once new connections no longer have a VIP as their source. It is false when
// the clean-up must not go on: the routes are as before then.
func (r *run) settle(ctx context.Context) bool {
	if !r.cuts() {
		return true
	}
	if err := r.drain(ctx); err != nil {
		r.giveUp(ctx, err)
		return false
	}
	return true
}

// cuts reports whether the plan removes anything that connections go through.
func (r *run) cuts() bool {
	for _, operation := range r.plan.GetOperations() {
		switch operation.GetStage() {
		case offrampv1.Stage_STAGE_VIRTUAL_SERVERS, offrampv1.Stage_STAGE_LINK:
			return true
		}
	}
	return false
}

// errNotDrained says that connections were still there when the wait ran out.
var errNotDrained = errors.New("connections that would be cut are still there")

func (r *run) drain(ctx context.Context) error {
	if r.request.CloseSockets {
		closed, err := closeSockets(r.vips())
		r.note(fmt.Sprintf("%d sockets with a VIP as their own address were closed", closed))
		if err != nil {
			r.note("not all sockets could be closed: " + err.Error())
		}
	}
	began := r.config.Now()
	for {
		left, err := r.leftToCut()
		if err != nil {
			return err
		}
		if left <= r.request.MaxConnections {
			return r.replanAfter(ctx, r.config.Now().Sub(began))
		}
		if waited := r.config.Now().Sub(began); waited >= r.request.Wait {
			return fmt.Errorf("%w: %d after %s, %d may be cut", errNotDrained, left, waited.Round(time.Second), r.request.MaxConnections)
		}
		if err := sleep(ctx, drainPause); err != nil {
			return err
		}
	}
}

// leftToCut counts what would be cut now. Whoever neither waits nor has sockets closed was asked by the plan's guards, and
// has overridden them where there is anything.
func (r *run) leftToCut() (uint64, error) {
	if r.request.Wait == 0 && !r.request.CloseSockets {
		return 0, nil
	}
	count, err := socketsFrom(r.config.Proc, r.vips())
	if err != nil || r.request.Wait == 0 {
		return count, err
	}
	through, err := r.connectionsThrough()
	return count + through, err
}

// vips are the addresses that go with the link.
func (r *run) vips() map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	for _, operation := range r.plan.GetOperations() {
		if operation.GetDeleteLink() != nil && r.node.Link != nil {
			for _, prefix := range r.node.Link.Addresses {
				vips[prefix.Addr()] = true
			}
		}
	}
	return vips
}

// connectionsThrough counts the established connections through virtual servers that go.
func (r *run) connectionsThrough() (uint64, error) {
	going := map[ipvsKey]bool{}
	for _, operation := range r.plan.GetOperations() {
		if server := r.servers().find(operation.GetDeleteVirtualServer()); server != nil {
			protocol, _ := ipvsProtocol(server.Protocol)
			going[ipvsKey{protocol, server.Address}] = true
		}
	}
	if len(going) == 0 {
		return 0, nil
	}
	r.flows.look(r.config.Now())
	return establishedThrough(r.config.Proc, going, &r.flows)
}

// replanAfter looks at the node again when the wait was long enough for it to have become another: kube-proxy may run in
// another mode by now.
func (r *run) replanAfter(ctx context.Context, waited time.Duration) error {
	if waited < drainPause {
		return nil
	}
	plan, reading, err := r.request.Plan(ctx)
	if err != nil {
		return fmt.Errorf("look at the node again after the wait: %w", err)
	}
	if blocking := Blocking(plan); len(blocking) > 0 {
		return &refusedNow{blocking}
	}
	if plan.GetRunningMode() != r.plan.GetRunningMode() || plan.GetBootId() != r.plan.GetBootId() || !r.sameButSources(plan) {
		return &refusedNow{[]*offrampv1.GuardFinding{Finding(GuardPlanChanged, "it changed while connections were waited for")}}
	}
	r.node = reading.Inventory
	return nil
}

// sameButSources reports whether a plan has the same operations from the virtual servers on.
func (r *run) sameButSources(plan *offrampv1.Plan) bool {
	left := countOperations(plan)
	for _, operation := range r.plan.GetOperations() {
		if operation.GetStage() != offrampv1.Stage_STAGE_SOURCE {
			left[describe(operation)]--
		}
	}
	for _, operation := range plan.GetOperations() {
		if operation.GetStage() != offrampv1.Stage_STAGE_SOURCE && left[describe(operation)] != 0 {
			return false
		}
	}
	for _, count := range left {
		if count < 0 {
			return false
		}
	}
	return true
}

func countOperations(plan *offrampv1.Plan) map[string]int {
	counts := map[string]int{}
	for _, operation := range plan.GetOperations() {
		counts[describe(operation)]++
	}
	return counts
}

// refusedNow says that guards stand in the way that did not when the clean-up began.
type refusedNow struct{ guards []*offrampv1.GuardFinding }

// Error implements error.
func (e *refusedNow) Error() string { return "refused by " + e.guards[0].GetId() }

// giveUp puts back the routes that were changed. Nothing else was.
func (r *run) giveUp(ctx context.Context, cause error) {
	var now *refusedNow
	switch {
	case errors.As(cause, &now):
		r.result.RefusedBy = now.guards
	case errors.Is(cause, errNotDrained):
		r.result.RefusedBy = []*offrampv1.GuardFinding{Finding(GuardNotDrained, cause.Error())}
	}
	r.note("given up before anything was removed: " + cause.Error())
	r.putBack(ctx)
	if len(r.result.GetRefusedBy()) == 0 {
		r.fail(cause)
	}
}

// putBack undoes the change of the routes' sources.
func (r *run) putBack(context.Context) {
	for i, operation := range r.plan.GetOperations() {
		result := r.result.GetOperations()[i]
		if operation.GetStage() != offrampv1.Stage_STAGE_SOURCE || result.GetOutcome() != done {
			continue
		}
		vip, err := netip.ParseAddr(operation.GetSetRouteSource().GetAddress())
		if err == nil {
			err = r.sources.reset(vip)
		}
		if err != nil {
			r.note(err.Error())
			setResult(result, done, fmt.Errorf("it could not be put back: %w", err))
			continue
		}
		setResult(result, notTried, nil)
	}
}
