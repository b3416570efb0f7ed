package serve

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// readAtOnce is how much is read from a connection at a time: a heartbeat, or half of an agent's record.
const readAtOnce = 1 << 10

const (
	// handshakesAtOnce bounds the handshakes that are worked on at a time. A handshake is a millisecond of one processor and a
	// round trip: ten thousand at once would each take ten seconds, and all would fail; one after the other none waits that long.
	handshakesAtOnce = 64
	// handshakeTurn is how long a connection waits for its turn. After that it goes ahead: whoever holds all turns without
	// going on delays others by this much and no more.
	handshakeTurn = 15 * time.Second
	// handshakePatience is how long a peer is waited for, all in all, before its turn is another's; it may go on without. 128 a second
	// that begin and do not go on delay nobody for long, and one address may have 1024 (--max-connections-per-address).
	handshakePatience = 500 * time.Millisecond
)

// queued are credentials whose handshakes wait for each other, first come, first served.
type queued struct {
	credentials.TransportCredentials
	turns          chan struct{}
	turn, patience time.Duration
}

func inTurn(creds credentials.TransportCredentials) *queued {
	return &queued{TransportCredentials: creds, turns: make(chan struct{}, handshakesAtOnce), turn: handshakeTurn, patience: handshakePatience}
}

// ServerHandshake waits for its turn and then shakes hands. A connection on which nothing came yet takes no turn.
func (q *queued) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := &spoken{Conn: conn}
	if err := first.wait(); err != nil {
		return nil, nil, err
	}
	late := time.NewTimer(q.turn)
	defer late.Stop()
	select {
	case q.turns <- struct{}{}:
		defer first.inTurn(func() { <-q.turns }, q.patience)()
	case <-late.C:
	}
	return q.TransportCredentials.ServerHandshake(first)
}

// Clone implements credentials.TransportCredentials.
func (q *queued) Clone() credentials.TransportCredentials {
	return &queued{TransportCredentials: q.TransportCredentials.Clone(), turns: q.turns, turn: q.turn, patience: q.patience}
}

// spoken is a connection whose first byte was read already.
//
// It reads little at a time: crypto/tls keeps, for as long as a connection lives, a buffer for the most that it ever read ahead.
type spoken struct {
	net.Conn
	first [1]byte
	held  bool
	// leave gives the turn back before the handshake is over, once patience has been waited for the peer. Nil without a turn.
	leave    func()
	patience time.Duration
}

func (s *spoken) wait() error {
	n, err := s.Conn.Read(s.first[:])
	s.held = n == 1
	return err
}

// inTurn has the turn until ended is called or patience is over, whichever comes first.
func (s *spoken) inTurn(leave func(), patience time.Duration) (ended func()) {
	leave = sync.OnceFunc(leave)
	s.leave, s.patience = leave, patience
	return func() {
		s.leave = nil
		leave()
	}
}

// Read gives the first byte back.
func (s *spoken) Read(into []byte) (int, error) {
	if s.held && len(into) > 0 {
		s.held = false
		into[0] = s.first[0]
		return 1, nil
	}
	into = into[:min(len(into), readAtOnce)]
	if s.leave == nil {
		return s.Conn.Read(into)
	}
	began, late := time.Now(), time.AfterFunc(s.patience, s.leave)
	defer late.Stop()
	n, err := s.Conn.Read(into)
	s.patience -= time.Since(began)
	return n, err
}
