package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// tryTimeout bounds one connection: two retransmissions of its first packet fit into it.
	tryTimeout = 2 * time.Second
	// againTimes and againPause are how often a connection that fails is tried again where its failure would matter.
	againTimes = 3
	againPause = 300 * time.Millisecond
	// maxEndpoints bounds how many endpoints of a Service are asked.
	maxEndpoints = 3
)

// Prober makes connections. The zero value makes real ones from the network namespace that it runs in. Safe for use by several
// goroutines.
type Prober struct {
	// Dial opens a connection, net.Dialer's by default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds each connection; 2 s by default.
	Timeout time.Duration
}

// Attempt is how one target's Service and, where they were asked, its endpoints answered.
type Attempt struct {
	Target
	// Failed is nil where the Service answered.
	Failed error
	// Answering are the endpoints that answered when asked directly. They are asked only where the Service did not.
	Answering []netip.AddrPort
}

// Once tries every target one time, all at once. It takes no longer than Timeout.
func (p *Prober) Once(ctx context.Context, targets []Target) []Attempt {
	return p.each(targets, func(target *Target) Attempt {
		return Attempt{Target: *target, Failed: p.try(ctx, target.Protocol, target.Service, target.Name)}
	})
}

// Thorough tries every target, one that fails 3 times over, and then asks its endpoints. It takes at most five times Timeout.
func (p *Prober) Thorough(ctx context.Context, targets []Target) []Attempt {
	return p.each(targets, func(target *Target) Attempt {
		attempt := Attempt{Target: *target}
		for again := range againTimes {
			if again > 0 && sleep(ctx, againPause) != nil {
				break
			}
			if attempt.Failed = p.try(ctx, target.Protocol, target.Service, target.Name); attempt.Failed == nil {
				return attempt
			}
		}
		attempt.Answering = p.answering(ctx, target)
		return attempt
	})
}

// answering asks endpoints directly.
func (p *Prober) answering(ctx context.Context, target *Target) []netip.AddrPort {
	asked := target.Endpoints[:min(len(target.Endpoints), maxEndpoints)]
	errs := make([]error, len(asked))
	var group sync.WaitGroup
	for i, endpoint := range asked {
		group.Go(func() { errs[i] = p.try(ctx, target.Protocol, endpoint, target.Name) })
	}
	group.Wait()
	var answering []netip.AddrPort
	for i, err := range errs {
		if err == nil {
			answering = append(answering, asked[i])
		}
	}
	return slices.Clip(answering)
}

func (p *Prober) each(targets []Target, try func(*Target) Attempt) []Attempt {
	attempts := make([]Attempt, len(targets))
	var group sync.WaitGroup
	for i := range targets {
		group.Go(func() { attempts[i] = try(&targets[i]) })
	}
	group.Wait()
	return attempts
}

// try makes one connection, and asks a question on it where DNS is what answers.
func (p *Prober) try(ctx context.Context, protocol string, to netip.AddrPort, name string) error {
	timeout := p.Timeout
	if timeout == 0 {
		timeout = tryTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dial := p.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, protocol, to.String())
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if name != NameDNS {
		return nil
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	return askDNS(conn, protocol == "tcp", uint16(rand.Uint32())) //nolint:gosec // it only tells answers apart
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
