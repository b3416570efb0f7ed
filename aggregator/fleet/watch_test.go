package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// drainWatch reads what a watcher has for us now.
func drainWatch(t *testing.T, w *Watcher) (events []*v1.WatchResponse) {
	t.Helper()
	for {
		name, any := w.take()
		if !any {
			return events
		}
		events = append(events, w.event(name))
	}
}

func TestWatcherHearsOfEveryChange(t *testing.T) {
	s, c := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), proxySection(t))
	w := s.Watch(nftables)
	defer w.Close()
	expect := func(when string, want int) []*v1.WatchResponse {
		t.Helper()
		events := drainWatch(t, w)
		if len(events) != want {
			t.Errorf("%s: events %v", when, events)
		}
		return events
	}
	beat := func(failures uint64, at int64) {
		t.Helper()
		if err := session.Heartbeat(&v1.Heartbeat{Sections: []*v1.SectionHeartbeat{{Kind: proxy, Volatile: syncs(failures, at)}}}); err != nil {
			t.Fatal(err)
		}
	}
	expect("nothing", 0)
	report(t, session, kernelSection(t, 5, "5.10.0"))
	if got := expect("a report", 1)[0].GetNode(); got.GetKernelRelease() != "5.10.0" {
		t.Errorf("got %v", got)
	}
	beat(0, 5)
	expect("a heartbeat without news", 0)
	beat(9, 6)
	expect("a heartbeat with news", 1)
	c.advance(181 * time.Second)
	s.Sweep()
	if got := expect("silence", 1)[0].GetNode().GetAssessment().GetPhase(); got != v1.Phase_PHASE_SILENT {
		t.Errorf("phase %v", got)
	}
	s.Sweep()
	expect("silence goes on", 0)
	beat(9, 7)
	expect("back", 1)
	session.Leave()
	if expect("left", 1)[0].GetNode().GetConnected() {
		t.Error("still connected")
	}
	c.advance(25 * time.Hour)
	s.Sweep()
	if got := expect("forgotten", 1)[0].GetForgotten(); got != "a" {
		t.Errorf("forgotten %q", got)
	}
}

// A watcher that reads nothing costs one name per node, however much happens.
func TestSlowWatcher(t *testing.T) {
	s, _ := newStore(t)
	sessions := addNodes(t, s, 10)
	w := s.Watch(nftables)
	defer w.Close()
	for round := range 100 {
		for _, session := range sessions {
			report(t, session, setsSection(t, uint64(round)))
		}
	}
	events := drainWatch(t, w)
	if len(events) != 10 {
		t.Fatalf("%d events", len(events))
	}
	for i, event := range events {
		if got := event.GetNode(); got.GetNode() != fmt.Sprintf("node-%06d", i) || got.GetInventory().GetIpsets() != 99 {
			t.Errorf("event %v", got)
		}
	}
}

func TestNextWaits(t *testing.T) {
	s, _ := newStore(t)
	w := s.Watch(nftables)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		join(s, "a")
	}()
	event, err := w.Next(ctx)
	<-joined
	if err != nil || event.GetNode().GetNode() != "a" {
		t.Errorf("got %v, %v", event, err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := w.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestClosedWatcherHearsNothing(t *testing.T) {
	s, _ := newStore(t)
	w := s.Watch(nftables)
	w.Close()
	join(s, "a")
	if events := drainWatch(t, w); len(events) != 0 {
		t.Errorf("events %v", events)
	}
}

func TestRunEnds(t *testing.T) {
	s, _ := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("Run goes on")
	}
}
