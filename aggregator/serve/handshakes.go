package serve

import (
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// handshakesAtOnce bounds the handshakes that are worked on at a time. A handshake is a millisecond of one processor and a
	// round trip: ten thousand at once would each take ten seconds, and all would fail; one after the other none waits that long.
	handshakesAtOnce = 64
	// handshakeTurn is how long a connection waits for its turn. After that it goes ahead: whoever holds all turns without
	// going on delays others by this much and no more.
	handshakeTurn = 15 * time.Second
)

// queued are credentials whose handshakes wait for each other, first come, first served.
type queued struct {
	credentials.TransportCredentials
	turns chan struct{}
	turn  time.Duration
}

func inTurn(creds credentials.TransportCredentials) *queued {
	return &queued{TransportCredentials: creds, turns: make(chan struct{}, handshakesAtOnce), turn: handshakeTurn}
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
		defer func() { <-q.turns }()
	case <-late.C:
	}
	return q.TransportCredentials.ServerHandshake(first)
}

// Clone implements credentials.TransportCredentials.
func (q *queued) Clone() credentials.TransportCredentials {
	return &queued{TransportCredentials: q.TransportCredentials.Clone(), turns: q.turns, turn: q.turn}
}

// spoken is a connection whose first byte was read already.
type spoken struct {
	net.Conn
	first [1]byte
	held  bool
}

func (s *spoken) wait() error {
	n, err := s.Conn.Read(s.first[:])
	s.held = n == 1
	return err
}

// Read gives the first byte back.
func (s *spoken) Read(into []byte) (int, error) {
	if s.held && len(into) > 0 {
		s.held = false
		into[0] = s.first[0]
		return 1, nil
	}
	return s.Conn.Read(into)
}
