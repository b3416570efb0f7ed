package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Agents, people, watchers and the sweep at once, for the race detector; at the end everything must add up.
func TestEverybodyAtOnce(t *testing.T) {
	s, c := newStore(t)
	sections := []*v1.SectionReport{setsSection(t, 0), setsSection(t, 1), setsSection(t, 2)}
	own := kernelSection(t, 6, "6.1.0")
	var agents, others sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 8 {
		agents.Go(func() {
			for round := range 100 {
				// Two goroutines share each node, so that they take it from each other.
				session, _, _ := join(s, fmt.Sprint("n", i/2))
				_ = session.Report(&v1.Report{Sections: []*v1.SectionReport{own, sections[(i+round)%3]}})
				_ = session.Heartbeat(&v1.Heartbeat{})
				session.Leave()
			}
		})
	}
	for _, target := range []v1.Target{nftables, iptables} {
		others.Go(func() {
			for ctx.Err() == nil {
				if got := s.Readiness(target, Filter{}, ""); got.GetReady()+got.GetBlocked()+got.GetUnknown() != got.GetNodes() {
					t.Errorf("does not add up: %v", got)
				}
				s.Node(target, "n1")
				s.Link("n2")
			}
		})
		others.Go(func() {
			watcher := s.Watch(target)
			defer watcher.Close()
			for {
				if _, err := watcher.Next(ctx); err != nil {
					return
				}
			}
		})
	}
	others.Go(func() {
		for ctx.Err() == nil {
			s.Sweep()
			time.Sleep(time.Millisecond)
		}
	})
	agents.Wait()
	cancel()
	others.Wait()
	if got := s.Readiness(nftables, Filter{}, ""); got.GetNodes() != 4 || got.GetReady() != 4 {
		t.Errorf("at the end: %v", got)
	}
	c.advance(48 * time.Hour)
	s.Sweep()
	if s.sections.size()+s.assessments.size()+s.profiles.size() != 0 {
		t.Errorf("kept: %d sections, %d assessments, %d profiles", s.sections.size(), s.assessments.size(), s.profiles.size())
	}
}

func TestInternerKeepsWhileHeld(t *testing.T) {
	i := newInterner[string, int]()
	first, second := i.acquire("a", 1), i.acquire("a", 2)
	if first != second || second.value != 1 || !i.has("a") || i.has("b") {
		t.Errorf("got %v and %v", first, second)
	}
	i.release(nil)
	i.release(first)
	if !i.has("a") {
		t.Error("given up while it is held")
	}
	i.release(second)
	if i.has("a") || i.size() != 0 {
		t.Error("kept though nobody holds it")
	}
	if again := i.acquire("a", 3); again.value != 3 {
		t.Errorf("got %v", again)
	}
}
