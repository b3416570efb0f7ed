package serve

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// crowdLogEvery is how often it is told that connections are turned away.
const crowdLogEvery = 10 * time.Second

// LimitPerAddress returns a listener that closes, before anything is read from it, a connection from an address which has
// most of them already. IPv6 addresses of one /64 count as one: one machine has them all. Connections of agents behind one
// translated address share its limit.
func LimitPerAddress(listener net.Listener, most int, log *slog.Logger) net.Listener {
	return &crowd{Listener: listener, most: most, log: log, open: map[netip.Addr]int{}}
}

type crowd struct {
	net.Listener
	most int
	log  *slog.Logger

	mu     sync.Mutex
	open   map[netip.Addr]int
	turned int
	logged time.Time
}

// Accept waits for a connection that is not one too many.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(conn.RemoteAddr())
		if c.enter(from) {
			return &crowded{Conn: conn, leave: sync.OnceFunc(func() { c.leave(from) })}, nil
		}
		_ = conn.Close()
	}
}

func (c *crowd) enter(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from] < c.most {
		c.open[from]++
		return true
	}
	c.turned++
	if now := time.Now(); now.Sub(c.logged) >= crowdLogEvery {
		c.log.Warn("too many connections from one address; more are turned away", "address", from.String(), "limit", c.most, "turned_away", c.turned)
		c.logged, c.turned = now, 0
	}
	return false
}

func (c *crowd) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from]--; c.open[from] <= 0 {
		delete(c.open, from)
	}
}

// origin is whom a connection counts for.
func origin(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	from := tcp.AddrPort().Addr().Unmap().WithZone("")
	if from.Is4() {
		return from
	}
	prefix, _ := from.Prefix(64)
	return prefix.Addr()
}

// crowded is a connection that counts until it is closed.
type crowded struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *crowded) Close() error {
	c.leave()
	return c.Conn.Close()
}
