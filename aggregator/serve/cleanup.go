package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/aggregator/auth"
	"offramp.dev/offramp/aggregator/orders"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// defaultAllowed is how long a node may take for an order when nothing is said.
	defaultAllowed = 5 * time.Minute
	// unauthenticated is who asks where nobody is asked who they are.
	unauthenticated = "unauthenticated"
)

// cleanups is CleanupService.
type cleanups struct {
	offrampv1.UnimplementedCleanupServiceServer

	desk    *orders.Desk
	audit   *auditor
	streams *streams
}

// event is what one call sends to its caller: progress, or the result.
type event func(progress *offrampv1.OrderProgress, result *offrampv1.OrderResult) error

// Plan asks a node what a clean-up would do.
func (c *cleanups) Plan(request *offrampv1.PlanRequest, stream grpc.ServerStreamingServer[offrampv1.PlanResponse]) error {
	order := &offrampv1.Order{Id: request.GetOrderId(), Kind: offrampv1.OrderKind_ORDER_KIND_PLAN, Target: request.GetTarget()}
	return c.give(stream.Context(), request, order, func(progress *offrampv1.OrderProgress, result *offrampv1.OrderResult) error {
		if result != nil {
			return stream.Send(&offrampv1.PlanResponse{Event: &offrampv1.PlanResponse_Result{Result: result}})
		}
		return stream.Send(&offrampv1.PlanResponse{Event: &offrampv1.PlanResponse_Progress{Progress: progress}})
	})
}

// Apply tells a node to do a plan.
func (c *cleanups) Apply(request *offrampv1.ApplyRequest, stream grpc.ServerStreamingServer[offrampv1.ApplyResponse]) error {
	order := &offrampv1.Order{
		Id: request.GetOrderId(), Kind: offrampv1.OrderKind_ORDER_KIND_APPLY, Target: request.GetTarget(), PlanDigest: request.GetPlanDigest(),
	}
	return c.give(stream.Context(), request, order, func(progress *offrampv1.OrderProgress, result *offrampv1.OrderResult) error {
		if result != nil {
			return stream.Send(&offrampv1.ApplyResponse{Event: &offrampv1.ApplyResponse_Result{Result: result}})
		}
		return stream.Send(&offrampv1.ApplyResponse{Event: &offrampv1.ApplyResponse_Progress{Progress: progress}})
	})
}

// Restore tells a node to bring back what a clean-up removed.
func (c *cleanups) Restore(request *offrampv1.RestoreRequest, stream grpc.ServerStreamingServer[offrampv1.RestoreResponse]) error {
	order := &offrampv1.Order{Id: request.GetOrderId(), Kind: offrampv1.OrderKind_ORDER_KIND_RESTORE, BackupId: request.GetBackupId()}
	return c.give(stream.Context(), request, order, func(progress *offrampv1.OrderProgress, result *offrampv1.OrderResult) error {
		if result != nil {
			return stream.Send(&offrampv1.RestoreResponse{Event: &offrampv1.RestoreResponse_Result{Result: result}})
		}
		return stream.Send(&offrampv1.RestoreResponse{Event: &offrampv1.RestoreResponse_Progress{Progress: progress}})
	})
}

// asked is what all requests have.
type asked interface {
	GetNode() string
	GetTimeout() *durationpb.Duration
}

// give passes an order on, follows it to its end, and has that written to the audit log.
func (c *cleanups) give(ctx context.Context, request asked, order *offrampv1.Order, send event) error {
	ender := enderOf(ctx)
	defer c.streams.add(ender)()
	caller, _ := auth.FromContext(ctx)
	order.Caller, order.TokenId = callerWords(caller), caller.TokenID
	ended := c.audit.begin(ctx, caller, request.GetNode(), order)
	result, err := c.follow(ctx, request, order, send)
	err = ender.reason(err)
	ended(result, err)
	return err
}

// follow returns the node's answer, if there was one.
func (c *cleanups) follow(ctx context.Context, request asked, order *offrampv1.Order, send event) (*offrampv1.OrderResult, error) {
	allowed, err := check(request, order)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	follower, err := c.desk.Place(request.GetNode(), order, allowed)
	if err != nil {
		return nil, orderStatus(err, request.GetNode())
	}
	// The caller's program knows from it that the order is on its way, before the node says anything.
	if err := grpc.SendHeader(ctx, metadata.Pairs(orderform.PlacedKey, order.GetId())); err != nil {
		return nil, err
	}
	for {
		progress, result, err := follower.Next(ctx)
		if err != nil {
			return nil, orderStatus(err, request.GetNode())
		}
		if err := send(progress, result); err != nil || result != nil {
			return result, err
		}
	}
}

func check(request asked, order *offrampv1.Order) (allowed time.Duration, err error) {
	if err := facts.CheckNodeName(request.GetNode()); err != nil {
		return 0, err
	}
	if err := orderform.Check(order); err != nil {
		return 0, err
	}
	if request.GetTimeout() == nil {
		return defaultAllowed, nil
	}
	if err := request.GetTimeout().CheckValid(); err != nil {
		return 0, fmt.Errorf("timeout: %w", err)
	}
	allowed = request.GetTimeout().AsDuration()
	if allowed < 0 || allowed > orderform.MaxAllowed {
		return 0, fmt.Errorf("timeout is up to %s, not %s", orderform.MaxAllowed, allowed)
	}
	if allowed == 0 {
		allowed = defaultAllowed
	}
	return allowed, nil
}

// callerWords are the caller as the node's own records have it.
func callerWords(caller auth.Caller) string {
	words := caller.Name
	if words == "" {
		words = unauthenticated
	}
	if caller.Claimed != "" {
		words += fmt.Sprintf(" (claims to be %s)", caller.Claimed)
	}
	return strings.ToValidUTF8(words[:min(len(words), orderform.MaxCaller)], "?")
}

// orderStatus gives the status of the desk's reasons.
func orderStatus(err error, node string) error {
	switch {
	case errors.Is(err, orders.ErrNoStream):
		return status.Errorf(codes.Unavailable, "node %q has no stream to this aggregator", node)
	case errors.Is(err, orders.ErrOtherOrder):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, orders.ErrTooMany), errors.Is(err, orders.ErrTooLarge):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, orders.ErrTooLate):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, orders.ErrUnreadable):
		return status.Error(codes.Internal, err.Error())
	default:
		return status.FromContextError(err).Err()
	}
}
