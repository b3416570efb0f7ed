package serve

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// handshake connects a client to what shakes hands with q, and returns when the server's side is done.
func handshake(t *testing.T, q *queued) (served chan error, client net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	served = make(chan error, 1)
	go func() {
		_, _, err := q.ServerHandshake(conn)
		served <- err
	}()
	return served, client
}

func queue(t *testing.T, turns int, turn time.Duration) *queued {
	t.Helper()
	config, err := TLSConfig(writePair(t, t.TempDir(), 1), quiet())
	if err != nil {
		t.Fatal(err)
	}
	return &queued{TransportCredentials: credentials.NewTLS(config), turns: make(chan struct{}, turns), turn: turn, patience: time.Minute}
}

func shake(t *testing.T, client net.Conn) {
	t.Helper()
	config := anyServer()
	config.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := tls.Client(client, config).HandshakeContext(ctx); err != nil {
		t.Errorf("the client: %v", err)
	}
}

func TestHandshakesComeThroughInTurn(t *testing.T) {
	q := queue(t, 2, time.Minute)
	var all sync.WaitGroup
	for range 30 {
		served, client := handshake(t, q)
		all.Go(func() {
			shake(t, client)
			if err := <-served; err != nil {
				t.Errorf("the server: %v", err)
			}
		})
	}
	all.Wait()
	if len(q.turns) != 0 {
		t.Errorf("%d turns were not given back", len(q.turns))
	}
}

// Connections on which nothing comes take no turn.
func TestASilentConnectionTakesNoTurn(t *testing.T) {
	q := queue(t, 1, time.Minute)
	for range 5 {
		handshake(t, q)
	}
	served, client := handshake(t, q)
	shake(t, client)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Whoever begins and does not go on keeps others waiting for a turn, and no longer.
func TestATurnThatIsHeldDelaysOthersOnce(t *testing.T) {
	q := queue(t, 1, 50*time.Millisecond)
	_, stuck := handshake(t, q)
	if _, err := stuck.Write([]byte{22}); err != nil {
		t.Fatal(err)
	}
	for len(q.turns) == 0 {
		time.Sleep(time.Millisecond)
	}
	served, client := handshake(t, q)
	began := time.Now()
	shake(t, client)
	if err := <-served; err != nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// Whoever begins and does not go on loses the turn, and may still go on without it. 64 of those would keep people out otherwise: a call
// of theirs takes ten seconds at most.
func TestATurnIsNotKeptByWaiting(t *testing.T) {
	q := queue(t, 1, time.Minute)
	q.patience = 20 * time.Millisecond
	var slow net.Conn
	var slowServed chan error
	for range 5 {
		slowServed, slow = handshake(t, q)
		time.Sleep(5 * time.Millisecond)
		if _, err := slow.Write([]byte{22}); err != nil {
			t.Fatal(err)
		}
	}
	served, client := handshake(t, q)
	began := time.Now()
	shake(t, client)
	if err := <-served; err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	shake(t, &begun{Conn: slow})
	if err := <-slowServed; err != nil {
		t.Errorf("the slow one: %v", err)
	}
	if len(q.turns) != 0 {
		t.Errorf("%d turns were not given back", len(q.turns))
	}
}

// begun is a connection on which the first byte of a handshake was written already.
type begun struct {
	net.Conn
	went bool
}

func (b *begun) Write(p []byte) (int, error) {
	if b.went {
		return b.Conn.Write(p)
	}
	b.went = true
	n, err := b.Conn.Write(p[1:])
	return n + 1, err
}
