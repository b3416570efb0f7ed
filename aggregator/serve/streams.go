package serve

import (
	"context"
	"sync"

	"google.golang.org/grpc/tap"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// enderKey is where the context of a long stream holds what ends it.
type enderKey struct{}

// endable makes long streams endable by the server. A handler that waits in Recv can only be woken by the context that
// the stream was made with, so that is where the way to end it must be put: a second goroutine per stream, which is the
// usual way, would cost a third more memory per agent.
func endable(ctx context.Context, info *tap.Info) (context.Context, error) {
	switch info.FullMethodName {
	case offrampv1.AgentService_Connect_FullMethodName, offrampv1.FleetService_Watch_FullMethodName:
		inner, end := context.WithCancelCause(ctx)
		return context.WithValue(inner, enderKey{}, end), nil
	default:
		return ctx, nil
	}
}

// enderOf returns what ends the stream of ctx. Without the tap there is none and nothing happens.
func enderOf(ctx context.Context) context.CancelCauseFunc {
	if end, ok := ctx.Value(enderKey{}).(context.CancelCauseFunc); ok {
		return end
	}
	return func(error) {}
}

// streams are the long streams that are open.
type streams struct {
	mu    sync.Mutex
	last  uint64
	open  map[uint64]context.CancelCauseFunc
	ended bool
}

// add counts a stream as open until done is called; it ends it at once when all were ended before.
func (s *streams) add(end context.CancelCauseFunc) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		end(errDraining)
		return func() {}
	}
	s.last++
	id := s.last
	s.open[id] = end
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
	}
}

// endAll ends every open stream, and every one that comes later.
func (s *streams) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, end := range s.open {
		end(errDraining)
	}
}
