// Package cleanup removes from a node's kernel what kube-proxy left there, and nothing else.
//
// Half of it decides (plan, guards, digest: pure functions over one reading of the node), the other half does (lock,
// backup, journal, operations, verification, restore). Deciding asks internal/kubeproxy whose a thing is; doing does the
// operations of a plan and never thinks of one by itself.
package cleanup

import (
	"context"
	"time"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Reading is what one look at a node found: the counted facts, and the exact objects read right after them.
type Reading struct {
	Facts     *offrampv1.NodeFacts
	Inventory *inventory.Node
}

// Options are what a person asked for.
type Options struct {
	Target offrampv1.Target
	// Overrides are reasons by guard id. A guard that cannot be overridden stays in the way whatever is in here.
	Overrides map[string]string
	// ResetSysctls adds the operations of STAGE_SYSCTLS.
	ResetSysctls bool
	Draining
}

// Draining is what becomes of connections that would be cut.
type Draining struct {
	// Wait is how long apply waits, after the change of the routes' sources, for connections through virtual servers that go
	// and for sockets with a VIP as their local address. 0: it does not wait, and both are guards of the plan.
	Wait time.Duration
	// MaxConnections is how many established connections may be cut.
	MaxConnections uint64
	// CloseSockets has apply close the sockets with a VIP as their local address, after the change of source.
	CloseSockets bool
}

// Request is what an Executor is asked to do.
type Request struct {
	// Digest of the plan that the person agreed to (32 bytes).
	Digest []byte
	// Plan reads the node anew and plans with the same options. An Executor calls it under its lock before the first change
	// (another digest or a guard in the way: refuse), again where a compare-and-swap failed (same digest: go on with the new
	// inventory), and after the last change, to verify: operations that are in the plan then remain.
	Plan func(context.Context) (*offrampv1.Plan, *Reading, error)
	Draining
	Origin
	// Progress, where it is not nil, is told of each part of the plan before it is done, and of the end. It must not block.
	Progress func(Progress)
}

// Origin is who asked for a clean-up or a restore, where it was ordered from afar. It is recorded and decides nothing.
type Origin struct {
	// Order is the id of the order, Caller the name that the aggregator gave, TokenID what the API server's audit calls the
	// caller's token.
	Order, Caller, TokenID string
}

// Progress is how far an apply has come.
type Progress struct {
	// Step is for people: "virtual servers".
	Step string
	// Done counts the operations that were tried, Total all of the plan.
	Done, Total uint64
}

// Executor does what was decided.
type Executor interface {
	// Guards are those of doing: the lock, another clean-up, room and durable storage for backup and journal. It changes
	// nothing but its own state directory.
	Guards(ctx context.Context, plan *offrampv1.Plan, reading *Reading) []*offrampv1.GuardFinding
	// Apply does a plan, or refuses: CleanupResult.refused_by then names the guards, and nothing was changed. The error is for
	// what kept it from beginning; what went wrong afterwards is in the result.
	Apply(ctx context.Context, request Request) (*offrampv1.CleanupResult, error)
}

// Blocking returns the guards of a plan that stand in the way: those that nobody overrode.
func Blocking(plan *offrampv1.Plan) []*offrampv1.GuardFinding {
	var blocking []*offrampv1.GuardFinding
	for _, guard := range plan.GetGuards() {
		if guard.GetOverriddenBecause() == "" {
			blocking = append(blocking, guard)
		}
	}
	return blocking
}
