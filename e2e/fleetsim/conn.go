package fleetsim

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// counts are what a fleet did since its start.
type counts struct {
	dials, refused    atomic.Int64
	welcomed, lost    atomic.Int64
	failed            atomic.Int64
	bytesIn, bytesOut atomic.Int64
	writes, changes   atomic.Int64
	mu                sync.Mutex
	reasons           map[string]int
}

// Counts are what a fleet did since its start.
type Counts struct {
	// Dials that were begun.
	Dials int64
	// Welcomed streams, those of them that ended, and attempts that ended before the welcome: Refused where nobody listened,
	// Failed for every other reason.
	Welcomed, Lost, Refused, Failed int64
	// BytesIn and BytesOut are what agents received and sent, TLS included; Writes how many pieces they sent it in.
	BytesIn, BytesOut, Writes int64
	// Changes are those that the churn made.
	Changes int64
	// Reasons say why streams and attempts ended, and how often.
	Reasons map[string]int
}

func (c *counts) read() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	reasons := map[string]int{}
	for reason, times := range c.reasons {
		reasons[reason] = times
	}
	return Counts{
		Dials: c.dials.Load(), Refused: c.refused.Load(), Welcomed: c.welcomed.Load(), Lost: c.lost.Load(), Failed: c.failed.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Writes: c.writes.Load(), Changes: c.changes.Load(), Reasons: reasons,
	}
}

// countedConn counts what goes through a connection, and takes its time where the peer is a slow one.
type countedConn struct {
	net.Conn
	counts *counts
	slow   time.Duration
	// dead: the peer's machine is gone. What is written is lost and nothing that comes is read, until the other side gives up.
	dead atomic.Bool
}

// Read implements net.Conn.
func (c *countedConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	for err == nil && c.dead.Load() {
		n, err = c.Conn.Read(into)
	}
	c.counts.bytesIn.Add(int64(n))
	if c.slow > 0 {
		time.Sleep(c.slow)
	}
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(what []byte) (int, error) {
	if c.slow > 0 {
		time.Sleep(c.slow)
	}
	if c.dead.Load() {
		return len(what), nil
	}
	n, err := c.Conn.Write(what)
	c.counts.bytesOut.Add(int64(n))
	c.counts.writes.Add(1)
	return n, err
}

// ear is a slog.Handler that hears from the agents' own log how their streams fare.
type ear struct{ counts *counts }

// Enabled implements slog.Handler.
func (ear) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (e ear) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e ear) WithGroup(string) slog.Handler { return e }

// Handle implements slog.Handler.
func (e ear) Handle(_ context.Context, record slog.Record) error {
	if record.Level == slog.LevelInfo {
		e.counts.welcomed.Add(1)
		return nil
	}
	lived, why := time.Duration(0), record.Message
	record.Attrs(func(attribute slog.Attr) bool {
		switch attribute.Key {
		case "lived":
			lived = attribute.Value.Duration()
		case "status", "reason":
			why += ": " + attribute.Value.String()
		}
		return true
	})
	switch {
	case lived > 0:
		e.counts.lost.Add(1)
	case strings.Contains(why, syscall.ECONNREFUSED.Error()):
		e.counts.refused.Add(1)
	default:
		e.counts.failed.Add(1)
	}
	e.counts.note(why)
	return nil
}

// maxReasons bounds the reasons that are kept apart.
const maxReasons = 50

func (c *counts) note(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reasons == nil {
		c.reasons = map[string]int{}
	}
	if _, known := c.reasons[why]; !known && len(c.reasons) >= maxReasons {
		why = "other reasons"
	}
	c.reasons[why]++
}
