package auth

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lookAgain asks, for as long as a person's stream lasts, whether the token still counts and the person still has the right,
// and ends the stream when the answer is no. No answer ends nothing. It is about streams without an end of their own: one that
// names a node, an order or a question about one, has a deadline, and what a node was told to do it goes on doing.
func (c *call) lookAgain(ctx context.Context, end func(error)) (stop func()) {
	if c.caller.Kind != Person || c.rule.byNode {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { c.lookUntilRefused(ctx, end) })
	return func() { cancel(); looking.Wait() }
}

func (c *call) lookUntilRefused(ctx context.Context, end func(error)) {
	ticker := time.NewTicker(c.guard.lookAgain)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := c.stillMay(ctx); err != nil {
			end(err)
			return
		}
	}
}

// stillMay returns a refusal, nil also where it could not be told.
func (c *call) stillMay(ctx context.Context) error {
	caller, err := c.guard.callers.Authenticate(ctx)
	if err == nil && caller.permit != nil {
		err = caller.permit(ctx, Action{Verb: c.rule.verb, Resource: c.rule.resource})
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return err
	default:
		return nil
	}
}
