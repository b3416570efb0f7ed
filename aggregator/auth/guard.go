package auth

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Authenticator finds out who makes a call.
type Authenticator interface {
	// Authenticate looks at the credentials that came with a call. Its errors are gRPC statuses: UNAUTHENTICATED for none or
	// bad ones, PERMISSION_DENIED for good ones of somebody who is nobody here, UNAVAILABLE where that could not be told.
	Authenticate(ctx context.Context) (Caller, error)
}

// Guard stands before every method. Its zero value is not usable.
type Guard struct {
	callers  Authenticator
	rules    map[string]rule
	refusals *refusals
	// lookAgain is how often a person's stream is held against his rights again.
	lookAgain time.Duration
}

// lookAgainEvery bounds how long a person goes on watching the fleet once he may no longer.
const lookAgainEvery = time.Minute

// New makes a guard. Without an authenticator nobody is asked anything and everybody may do everything that the table
// knows; Caller.Kind is then Unchecked.
func New(callers Authenticator, log *slog.Logger) *Guard {
	return &Guard{callers: callers, rules: table(), refusals: newRefusals(log), lookAgain: lookAgainEvery}
}

// Unary is the interceptor of methods with one request and one answer.
func (g *Guard) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		call := &call{guard: g, method: info.FullMethod}
		if err := call.admit(ctx); err != nil {
			return nil, g.refusals.refused(ctx, call, err)
		}
		if err := call.check(ctx, request); err != nil {
			return nil, g.refusals.refused(ctx, call, err)
		}
		return handler(NewContext(ctx, call.caller), request)
	}
}

// Stream is the interceptor of streaming methods. It ends a stream whose caller's proof ends or is withdrawn.
func (g *Guard) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		call := &call{guard: g, method: info.FullMethod}
		if err := call.admit(ctx); err != nil {
			return g.refusals.refused(ctx, call, err)
		}
		end := newEnding(ctx)
		defer end.when(call.caller)()
		defer call.lookAgain(ctx, end.end)()
		err := handler(server, &guarded{ServerStream: stream, ctx: NewContext(ctx, call.caller), call: call})
		if cause := end.reason(); cause != nil {
			return g.refusals.refused(ctx, call, cause)
		}
		return err
	}
}

// call is one call on its way through the guard.
type call struct {
	guard   *Guard
	method  string
	rule    rule
	caller  Caller
	node    string // that it is about
	checked bool
}

// admit finds out who calls, and whether such callers may call the method at all.
func (c *call) admit(ctx context.Context) (err error) {
	var listed bool
	if c.rule, listed = c.guard.rules[c.method]; !listed {
		return status.Errorf(codes.PermissionDenied, "nobody may call %s", c.method)
	}
	if c.guard.callers == nil || c.rule.who == Unchecked {
		c.checked = true
		c.caller = Caller{Claimed: claimed(ctx)}
		return nil
	}
	if c.caller, err = c.guard.callers.Authenticate(ctx); err != nil {
		return err
	}
	if c.caller.Kind != c.rule.who {
		return status.Errorf(codes.PermissionDenied, "%s may be called by %ss alone, and %s is none", c.method, c.rule.who, c.caller.Name)
	}
	if c.caller.Kind == Person {
		c.caller.Claimed = claimed(ctx)
	}
	if c.rule.byNode {
		return nil
	}
	return c.permit(ctx)
}

// check holds a message against the caller's rights, until one was: the first that names a node.
func (c *call) check(ctx context.Context, message any) error {
	if c.checked {
		return nil
	}
	node, named := nodeOf(message)
	if !named && c.rule.who == Agent {
		// The handler refuses whatever comes before Hello.
		return nil
	}
	if c.node = node; !named || node == "" {
		return status.Errorf(codes.InvalidArgument, "%s wants a node's name", c.method)
	}
	return c.permit(ctx)
}

func (c *call) permit(ctx context.Context) error {
	c.checked = true
	if c.rule.who == Agent {
		return c.ownNode()
	}
	if c.caller.permit == nil {
		return status.Errorf(codes.PermissionDenied, "nothing is known of what %s may do", c.caller.Name)
	}
	return c.caller.permit(ctx, Action{Verb: c.rule.verb, Resource: c.rule.resource, Node: c.node})
}

// ownNode holds that an agent speaks for its own node. A caller whose node is not known speaks for none.
func (c *call) ownNode() error {
	if c.caller.Node == "" || c.caller.Node != c.node {
		return status.Errorf(codes.PermissionDenied, "this is the agent of node %q, it may not report for node %q", c.caller.Node, c.node)
	}
	return nil
}

// guarded is a stream whose messages are checked until one was.
type guarded struct {
	grpc.ServerStream
	ctx  context.Context
	call *call
}

// Context has the caller in it.
func (s *guarded) Context() context.Context { return s.ctx }

// RecvMsg receives a message and refuses it when the caller may not say it.
func (s *guarded) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if err := s.call.check(s.ctx, message); err != nil {
		return s.call.guard.refusals.refused(s.ctx, s.call, err)
	}
	return nil
}
