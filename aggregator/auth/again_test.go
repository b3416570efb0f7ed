package auth

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// watching is a viewer's stream without an end, behind a guard that looks again every few milliseconds.
type watching struct {
	*testing.T

	cluster *apiserver
	ahead   atomic.Int64 // of the clock by which answers are remembered
	out     *logged
	stream  grpc.ServerStreamingClient[healthv1.HealthCheckResponse]
}

func startWatching(t *testing.T) *watching {
	t.Helper()
	w := &watching{T: t, cluster: newAPIServer(t), out: &logged{}}
	tokens := w.cluster.newTokens(func(c *TokensConfig) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	})
	guard := New(tokens, slog.New(slog.NewTextHandler(w.out, nil)))
	guard.lookAgain = 5 * time.Millisecond
	server := grpc.NewServer(grpc.StreamInterceptor(guard.Stream()))
	healthv1.RegisterHealthServer(server, health.NewServer())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	conn, err := grpc.NewClient(socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.cluster.mint(token{account: "offramp-viewer"}))
	if w.stream, err = healthv1.NewHealthClient(conn).Watch(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return w
}

// forget has the next looks ask the API server instead of remembering, and waits until they have, several times.
func (w *watching) forget() {
	w.Helper()
	for range 3 {
		before := w.cluster.asked("review")
		w.ahead.Add(int64(2 * accessKept))
		for deadline := time.Now().Add(10 * time.Second); w.cluster.asked("review") == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				w.Fatal("nobody looks again")
			}
		}
	}
}

func (w *watching) ends(want codes.Code, says string) {
	w.Helper()
	if _, err := w.stream.Recv(); status.Code(err) != want || !strings.Contains(err.Error(), says) {
		w.Errorf("got %v, want %s with %q", err, want, says)
	}
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(w.out.String(), "msg=refused"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("no line says so: %s", w.out)
		}
	}
}

// Who loses the right while he watches is refused, and so is who loses the account; both are logged as any refusal is.
func TestARevokedPersonStopsWatching(t *testing.T) {
	w := startWatching(t)
	w.forget() // and nothing has changed
	if said := w.out.String(); said != "" {
		t.Errorf("the log says %s", said)
	}
	w.cluster.set(func() { w.cluster.revoked["access of "+viewer] = true })
	w.ahead.Add(int64(2 * accessKept))
	w.ends(codes.PermissionDenied, "may not list nodes.offramp.dev")

	w = startWatching(t)
	w.cluster.set(func() { w.cluster.revoked[viewer] = true })
	w.ahead.Add(int64(2 * accessKept))
	w.ends(codes.Unauthenticated, "does not confirm the token")
}

// An API server that does not answer says nothing about anybody.
func TestWatchingGoesOnWithoutTheAPIServer(t *testing.T) {
	w := startWatching(t)
	w.cluster.set(func() { w.cluster.down = errors.New("away") })
	w.forget()
	if said := w.out.String(); said != "" {
		t.Errorf("the log says %s", said)
	}
	w.cluster.set(func() { w.cluster.down, w.cluster.revoked["access of "+viewer] = nil, true })
	w.ahead.Add(int64(2 * accessKept))
	w.ends(codes.PermissionDenied, "may not list")
}

// Agents are followed by reviews at a bounded rate, and what names a node has a deadline: neither is looked at here.
func TestOthersAreNotLookedAtAgain(t *testing.T) {
	for _, c := range []*call{{caller: Caller{Kind: Agent}}, {caller: Caller{Kind: Unchecked}}, {caller: Caller{Kind: Person}, rule: rule{byNode: true}}} {
		c.guard = &Guard{lookAgain: time.Nanosecond} // without an authenticator: a look would panic
		stop := c.lookAgain(t.Context(), func(err error) { t.Errorf("ended by %v", err) })
		time.Sleep(5 * time.Millisecond)
		stop()
	}
}
