package serve

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// statusWriter is how gRPC's own stream lets a status be sent before the handler has returned.
type statusWriter interface {
	WriteStatus(st *status.Status) error
}

// ender ends a stream from outside its handler.
//
// A handler that waits in Recv can only be woken by the end of its stream. The usual way, a second goroutine per stream that
// waits for either, would cost a third more memory per agent. gRPC's own stream can be told to finish from any goroutine: it
// then sends the status and wakes Recv and Send. That method is exported, though not documented; the tests of every
// reason to end a stream fail if it ever goes away.
type ender struct {
	transport statusWriter

	mu    sync.Mutex
	cause error
}

// enderOf finds what ends the stream of a handler's context.
func enderOf(ctx context.Context) *ender {
	transport, _ := grpc.ServerTransportStreamFromContext(ctx).(statusWriter)
	return &ender{transport: transport}
}

// end ends the stream with the status of cause; only the first call counts. It does not wait for the handler.
func (e *ender) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil {
		return
	}
	e.cause = cause
	if e.transport != nil {
		// It fails when the stream has ended already, which is what is wanted.
		_ = e.transport.WriteStatus(status.Convert(ending(cause)))
	}
}

// reason is why the stream ended: what it was ended with, or else the error of its handler.
func (e *ender) reason(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil {
		return ending(e.cause)
	}
	return ending(err)
}

// streams are the long streams that are open.
type streams struct {
	mu    sync.Mutex
	open  map[*ender]struct{}
	ended bool
}

// add counts a stream as open until done is called; it ends it at once when all were ended before.
func (s *streams) add(e *ender) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		e.end(errDraining)
	}
	s.open[e] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, e)
	}
}

// endAll ends every open stream, and every one that comes later.
func (s *streams) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for e := range s.open {
		e.end(errDraining)
	}
}
