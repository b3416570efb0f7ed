package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"
)

// MaxAddresses bounds the addresses of one name that are used.
const MaxAddresses = 16

// Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Finder looks for the addresses behind targets. The zero value asks the host's resolver and remembers nothing beyond the process.
type Finder struct {
	// Resolver is asked. Default: net.DefaultResolver.
	Resolver Resolver
	// Memory keeps addresses beyond the process. Nil: nothing does.
	Memory *File
	// Interval is the pause between two look-ups that succeed (default 30 s), up to a tenth shorter or longer. After a change or a
	// hint the pauses grow up to it: a replica that went is soon followed by another one.
	Interval time.Duration
	// Deadline bounds one look-up (default 5 s).
	Deadline time.Duration
	// FirstPause is the pause after a look-up that failed (default 2 s), which doubles up to Interval, and bounds how soon after a
	// hint the next look-up comes. It is at random up to a half shorter.
	FirstPause time.Duration
	// Rand gives numbers from 0 up to 1. Default math/rand/v2.
	Rand func() float64
	// Log is told of failures and what changed. Default slog.Default.
	Log *slog.Logger
}

func (f Finder) withDefaults() Finder {
	if f.Resolver == nil {
		f.Resolver = net.DefaultResolver
	}
	if f.Interval <= 0 {
		f.Interval = 30 * time.Second
	}
	if f.Deadline <= 0 {
		f.Deadline = 5 * time.Second
	}
	if f.FirstPause <= 0 {
		f.FirstPause = 2 * time.Second
	}
	if f.Rand == nil {
		f.Rand = rand.Float64
	}
	if f.Log == nil {
		f.Log = slog.Default()
	}
	return f
}

// Follow calls found with all addresses of a target, "address:port" each, at first and whenever they are others, until ctx ends. A
// look-up that fails or has no address in its answer changes nothing. hints, where a stream has ended, makes the next look-up
// come sooner. found is called from Follow's own goroutine, and never with none.
func (f Finder) Follow(ctx context.Context, target Target, hints <-chan struct{}, found func(addresses []string)) {
	if address, ok := target.literal(); ok {
		found([]string{address})
		<-ctx.Done()
		return
	}
	s := &search{Finder: f.withDefaults(), target: target, hints: hints, found: found}
	s.calm = s.FirstPause
	s.Log = s.Log.With("aggregator", target.String())
	for ctx.Err() == nil {
		s.rest(ctx, s.look(ctx))
	}
}

// search is what is known of one name.
type search struct {
	Finder

	target Target
	hints  <-chan struct{}
	found  func([]string)

	known []string
	// failing is the pause after the last failure; 0 after a success. crowded is what was last said of too many addresses.
	failing time.Duration
	crowded int
	// calm is the pause after the last success.
	calm time.Duration
}

// look looks the name up once and returns the pause until the next time.
func (s *search) look(ctx context.Context) time.Duration {
	addresses, err := s.ask(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		return s.failed(err)
	}
	if s.failing > 0 {
		s.Log.Info("the name can be looked up again")
	}
	s.failing = 0
	s.learn(s.choose(addresses))
	s.calm = min(2*s.calm, s.Interval)
	return s.calm + time.Duration((s.Rand()-0.5)*0.2*float64(s.calm))
}

var errNone = errors.New("the name has no address of an aggregator")

func (s *search) ask(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Deadline)
	defer cancel()
	answer, err := s.Resolver.LookupNetIP(ctx, "ip", s.target.host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", s.target.host, err)
	}
	var addresses []string
	for _, address := range answer {
		if address = address.Unmap(); address.IsValid() && usable(address) {
			addresses = append(addresses, s.target.at(address))
		}
	}
	if len(addresses) == 0 {
		return nil, errNone
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// failed falls back on what is remembered, once: what is known stays.
func (s *search) failed(err error) time.Duration {
	if s.failing == 0 {
		s.Log.Warn("the aggregator's name cannot be looked up; known addresses stay", "known", len(s.known), "error", err)
	}
	s.failing = min(max(2*s.failing, s.FirstPause), s.Interval)
	if len(s.known) == 0 {
		if remembered := s.Memory.recall(s.target); len(remembered) > 0 {
			s.Log.Info("using the addresses that the name had before", "addresses", remembered)
			s.known = remembered
			s.found(slices.Clone(remembered))
		}
	}
	return s.shorter(s.failing)
}

// choose bounds the addresses. Those in use go first, so that an answer in another order changes nothing.
func (s *search) choose(addresses []string) []string {
	if len(addresses) <= MaxAddresses {
		s.crowded = 0
		return addresses
	}
	if s.crowded != len(addresses) {
		s.Log.Warn("the name has more addresses than are used", "addresses", len(addresses), "used", MaxAddresses)
	}
	s.crowded = len(addresses)
	chosen := slices.DeleteFunc(slices.Clone(s.known), func(known string) bool { return !slices.Contains(addresses, known) })
	for _, address := range addresses {
		if len(chosen) < MaxAddresses && !slices.Contains(chosen, address) {
			chosen = append(chosen, address)
		}
	}
	slices.Sort(chosen)
	return chosen
}

func (s *search) learn(addresses []string) {
	if !slices.Equal(s.known, addresses) {
		s.Log.Info("the aggregator's name has these addresses", "addresses", addresses)
		s.known, s.calm = addresses, s.FirstPause
		s.found(slices.Clone(addresses))
	}
	// Last: the disk may hang.
	s.Memory.keep(s.target, addresses)
}

// rest waits for the pause, or less after a hint: agents that lost their streams together do not ask together.
func (s *search) rest(ctx context.Context, pause time.Duration) {
	select {
	case <-s.hints:
		s.calm = s.FirstPause
		sleep(ctx, s.shorter(s.FirstPause))
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

func (s *search) shorter(d time.Duration) time.Duration {
	return d - time.Duration(s.Rand()*0.5*float64(d))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
