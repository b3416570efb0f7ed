package cleanup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Planner reads a node and plans, again and again with the same options.
type Planner struct {
	// Read reads the node anew.
	Read    func(context.Context) (*Reading, error)
	Options Options
	Now     func() time.Time
}

// readPatience is how long a node is read again of which a part kept changing meanwhile, as a ruleset does whose generation
// others move all the time.
const readPatience = 10 * time.Second

// Plan reads the node and plans. It is a Request.Plan.
func (p *Planner) Plan(ctx context.Context) (*offrampv1.Plan, *Reading, error) {
	reading, err := p.readSettled(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the node: %w", err)
	}
	plan, err := MakePlan(reading, p.Options, p.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("plan: %w", err)
	}
	return plan, reading, nil
}

// readSettled reads the node until no part of it changed in the middle of every try, or for readPatience: the last reading
// then says which part did. Each reading is a whole one, since what a plan may do hangs on all parts together.
func (p *Planner) readSettled(ctx context.Context) (*Reading, error) {
	patience, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	for {
		reading, err := p.Read(ctx)
		if err != nil || !keptChanging(reading) || outOfStep(patience) != nil {
			return reading, err
		}
	}
}

// keptChanging reports whether a part in which something of kube-proxy's can be was read, but never twice alike.
func keptChanging(reading *Reading) bool {
	changed := func(kind offrampv1.SectionKind) bool {
		state := facts.Find(reading.Facts, kind).GetStable().GetState()
		return state == offrampv1.SectionState_SECTION_STATE_INCONSISTENT
	}
	return len(reading.Inventory.KeptChanging) > 0 || slices.ContainsFunc(kernelSections(), changed)
}

// outOfStep pauses for a moment that is never the same twice, so that tries do not keep meeting the same change of somebody
// who works at a steady pace. The error is the context's.
func outOfStep(ctx context.Context) error {
	const most = 10 * time.Millisecond
	return sleep(ctx, rand.N(most)) //nolint:gosec // nobody gains by guessing it
}

// Preview plans for people: the guards of doing are among the plan's. executor may be nil.
func (p *Planner) Preview(ctx context.Context, executor Executor) (*offrampv1.Plan, error) {
	plan, reading, err := p.Plan(ctx)
	if err != nil {
		return nil, err
	}
	if executor != nil && len(plan.GetOperations()) > 0 {
		plan.Guards = append(plan.Guards, override(executor.Guards(ctx, plan, reading), p.Options.Overrides)...)
	}
	return plan, nil
}

// ErrOverride says that an override names no guard, or one that cannot be overridden, or gives no reason.
var ErrOverride = errors.New("not an override")

// CheckOverride returns an error that wraps ErrOverride unless this guard may be overridden for this reason.
func CheckOverride(id, reason string) error {
	at := slices.IndexFunc(Guards(), func(guard Guard) bool { return guard.ID == id })
	switch {
	case at < 0:
		return fmt.Errorf("%w: there is no guard %q", ErrOverride, id)
	case !Guards()[at].Overridable:
		return fmt.Errorf("%w: %s cannot be overridden (%s)", ErrOverride, id, Guards()[at].Remedy)
	case reason == "":
		return fmt.Errorf("%w: %s needs a reason", ErrOverride, id)
	default:
		return nil
	}
}
