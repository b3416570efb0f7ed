package orders

import (
	"net"
	"sync"
	"testing"
	"time"
)

// cable passes bytes on to the aggregator, until it is cut.
type cable struct {
	listener net.Listener
	all      sync.WaitGroup

	mu    sync.Mutex
	dead  bool
	conns map[net.Conn]struct{}
}

func newCable(t *testing.T) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: listener, conns: map[net.Conn]struct{}{}}
	c.all.Go(c.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		c.reset()
		c.all.Wait()
	})
	return c
}

func (c *cable) accept() {
	for {
		in, err := c.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", address)
		if err != nil {
			_ = in.Close()
			continue
		}
		c.mu.Lock()
		c.conns[in], c.conns[out] = struct{}{}, struct{}{}
		c.mu.Unlock()
		c.all.Go(func() { c.pass(in, out) })
		c.all.Go(func() { c.pass(out, in) })
	}
}

// pass reads what comes also while the cable is cut, and drops it: nobody hears of the cut.
func (c *cable) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if c.isDead() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (c *cable) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *cable) cut(dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = dead
}

// reset ends all connections, as a firewall does that has forgotten them.
func (c *cable) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = map[net.Conn]struct{}{}
}

// The network is cut before the order arrives, while it is done, and before the result is heard, for a while; then the
// connections are found to be dead, and all parts find each other again.
func TestCutNetwork(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	wire := newCable(t)
	s.agent.kill()
	s.at = wire.listener.Addr().String()
	s.startAgent()
	for n, phase := range []string{"before the order arrives", "while it is done", "before the result is heard"} {
		t.Run(phase, func(t *testing.T) {
			id := id(400 + n)
			s.dirty()
			digest := s.digest()
			on := func() {}
			if n == 1 {
				on = s.holdProxy()
			}
			wire.cut(n == 0)
			p := s.apply(id, digest)
			switch n {
			case 0:
				time.Sleep(time.Second)
			case 1:
				until(t, "it is accepted", s.recorded(id, ".json"))
				wire.cut(true)
			case 2:
				until(t, "it is accepted", s.recorded(id, ".json"))
				wire.cut(true)
				until(t, "it ends", s.recorded(id, ".result"))
			}
			on()
			time.Sleep(time.Second)
			wire.cut(false)
			wire.reset()
			s.done(id, p)
		})
	}
}
