package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Planner reads a node and plans, again and again with the same options.
type Planner struct {
	// Read reads the node anew.
	Read    func(context.Context) (*Reading, error)
	Options Options
	Now     func() time.Time
}

// Plan reads the node and plans. It is a Request.Plan.
func (p *Planner) Plan(ctx context.Context) (*offrampv1.Plan, *Reading, error) {
	reading, err := p.Read(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the node: %w", err)
	}
	plan, err := MakePlan(reading, p.Options, p.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("plan: %w", err)
	}
	return plan, reading, nil
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
