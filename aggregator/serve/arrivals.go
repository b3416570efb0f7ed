package serve

import (
	"net"
	"sync"
)

// arrivals is a listener that can close the connections that it accepted. gRPC waits at a stop for connections that still shake hands,
// for as long as those may take, and knows no way to end them.
type arrivals struct {
	net.Listener

	mu   sync.Mutex
	open map[*arrival]struct{}
}

func newArrivals(listener net.Listener) *arrivals {
	return &arrivals{Listener: listener, open: map[*arrival]struct{}{}}
}

// Accept waits for a connection.
func (a *arrivals) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	arrived := &arrival{Conn: conn, among: a}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[arrived] = struct{}{}
	return arrived, nil
}

// cut closes every connection.
func (a *arrivals) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for arrived := range a.open {
		_ = arrived.Conn.Close()
	}
}

// arrival is a connection that is known until it is closed.
type arrival struct {
	net.Conn
	among *arrivals
}

// Close closes the connection.
func (a *arrival) Close() error {
	a.among.mu.Lock()
	delete(a.among.open, a)
	a.among.mu.Unlock()
	return a.Conn.Close()
}
