package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// grace is how long a reader whose time is up may take to say so itself, which tells more than that it overran.
const grace = 250 * time.Millisecond

// perform reads the sections of one duty within the section timeout and signs them with time and duration.
//
// The kernel can hold a reader for ever. Such a reader cannot be stopped: it is left behind, its sections are unreadable,
// and until it comes back it is not started again, so that there is never more than one of a kind.
func (s *Scanner) perform(ctx context.Context, d duty) []*offrampv1.Section {
	started := s.config.Host.Now()
	ctx, cancel := context.WithTimeout(ctx, s.config.SectionTimeout)
	defer cancel()
	sections := s.supervise(ctx, d)
	ended := s.config.Host.Now()
	for _, section := range sections {
		section.Volatile.ReadAt = timestamppb.New(ended)
		section.Volatile.ReadTook = durationpb.New(max(ended.Sub(started), 0))
		section.Volatile.Attempts = max(section.Volatile.GetAttempts(), 1)
	}
	return sections
}

func (s *Scanner) supervise(ctx context.Context, d duty) []*offrampv1.Section {
	if !s.begin(d) {
		return d.failed(errors.New("an earlier reading has still not come back"))
	}
	done := make(chan []*offrampv1.Section, 1)
	go func() {
		sections := d.guarded(ctx)
		s.end(d) // before the answer: whoever has that may start the next reading
		done <- sections
	}()
	select {
	case sections := <-done:
		return sections
	case <-ctx.Done():
	}
	select {
	case sections := <-done:
		return sections
	case <-time.After(grace):
		return d.failed(fmt.Errorf("it was not read within %s: %w", s.config.SectionTimeout, context.Cause(ctx)))
	}
}

func (s *Scanner) begin(d duty) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[d.kinds[0]] {
		return false
	}
	s.busy[d.kinds[0]] = true
	return true
}

func (s *Scanner) end(d duty) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, d.kinds[0])
}

// guarded turns a panic of a reader into sections that could not be read.
func (d duty) guarded(ctx context.Context) (sections []*offrampv1.Section) {
	defer func() {
		if broken := recover(); broken != nil {
			sections = d.failed(fmt.Errorf("the reader broke down: %v", broken))
		}
	}()
	return d.read(ctx)
}

func (d duty) failed(err error) []*offrampv1.Section {
	sections := make([]*offrampv1.Section, 0, len(d.kinds))
	for _, kind := range d.kinds {
		sections = append(sections, failed(kind, err))
	}
	return sections
}
