package auth

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errExpired ends a call whose proof has run out. It is no refusal: with a fresh proof the caller may come back at once.
var errExpired = status.Error(codes.Unavailable, "the token or certificate of this stream has expired; come back with a fresh one")

// ending ends a stream from outside its handler, as the ender of the package serve does, and for the same reason: a handler
// that waits in RecvMsg wakes only when gRPC's own stream ends.
type ending struct {
	stream interface {
		WriteStatus(st *status.Status) error
	}

	mu    sync.Mutex
	cause error
}

func newEnding(ctx context.Context) *ending {
	e := &ending{}
	e.stream, _ = grpc.ServerTransportStreamFromContext(ctx).(interface {
		WriteStatus(st *status.Status) error
	})
	return e
}

// end ends the stream; only the first cause counts.
func (e *ending) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil {
		return
	}
	e.cause = cause
	if e.stream != nil {
		// It fails when the stream has ended already, which is what is wanted.
		_ = e.stream.WriteStatus(status.Convert(cause))
	}
}

func (e *ending) reason() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// when ends the stream once the caller's proof has expired or is withdrawn, until stop is called.
func (e *ending) when(caller Caller) (stop func()) {
	stopClock, stopFollowing := func() bool { return true }, func() {}
	if !caller.Until.IsZero() {
		stopClock = time.AfterFunc(time.Until(caller.Until), func() { e.end(errExpired) }).Stop
	}
	if caller.follow != nil {
		stopFollowing = caller.follow(e.end)
	}
	return func() { stopClock(); stopFollowing() }
}
