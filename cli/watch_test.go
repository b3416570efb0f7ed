package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func changed(name string, ready offrampv1.Verdict) *offrampv1.WatchResponse {
	return &offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Node{Node: summaryOf(name, ready)}}
}

func forgotten(name string) *offrampv1.WatchResponse {
	return &offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Forgotten{Forgotten: name}}
}

func synced(nodes uint64) *offrampv1.WatchResponse {
	return &offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Synced{Synced: &offrampv1.Synced{Nodes: nodes}}}
}

func someEvents() []*offrampv1.WatchResponse {
	ready, blocked := offrampv1.Verdict_VERDICT_READY, offrampv1.Verdict_VERDICT_BLOCKED
	return []*offrampv1.WatchResponse{
		changed("worker-2", ready), changed("worker-1", ready), changed("worker-3", ready), forgotten("worker-3"), synced(2),
		changed("worker-1", blocked), forgotten("worker-2"),
	}
}

func TestWatchPrintsAFirstRoundThenChanges(t *testing.T) {
	fleet := &fakeFleet{events: someEvents()}
	got := ask(t, fleet, "nodes", "-w")
	got.want(t, 1, "", "ended the watch; it may be restarting")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	for i, want := range []string{"NODE", "worker-1  6.1.0   ipvs  on-ipvs  ready", "worker-2", "worker-1  6.1.0   ipvs  on-ipvs  blocked", "worker-2  forgotten"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is not %q:\n%s", i, want, got.stdout)
		}
	}
	if len(lines) != 5 {
		t.Errorf("%d lines:\n%s", len(lines), got.stdout)
	}
}

// A watch of an aggregator that does not know every node says so, beside the rows or in its own lines.
func TestWatchOfAnIncompleteFleet(t *testing.T) {
	mark := synced(0)
	mark.GetSynced().Incomplete = "it has just\x1b started"
	events := []*offrampv1.WatchResponse{mark}
	ask(t, &fakeFleet{events: events}, "nodes", "-w").want(t, 1, "", `Nodes may be missing: it has just\x1b started`)
	ask(t, &fakeFleet{events: events}, "watch").want(t, 1, `Nodes may be missing: it has just\x1b started`, "ended")
	ask(t, &fakeFleet{events: events}, "nodes", "-w", "-o", "json").want(t, 1, `"incomplete"`, "ended")
}

func TestWatchFormats(t *testing.T) {
	names := ask(t, &fakeFleet{events: someEvents()}, "nodes", "-w", "-o", "name")
	if want := "worker-1\nworker-2\nworker-1\n"; names.stdout != want {
		t.Errorf("got %q", names.stdout)
	}
	lines := ask(t, &fakeFleet{events: someEvents()}, "nodes", "-w", "-o", "json")
	for line := range strings.Lines(lines.stdout) {
		if err := protojson.Unmarshal([]byte(line), &offrampv1.WatchResponse{}); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if n := strings.Count(lines.stdout, "\n"); n != len(someEvents()) {
		t.Errorf("%d lines", n)
	}
	documents := ask(t, &fakeFleet{events: someEvents()}, "nodes", "-w", "-o", "yaml")
	if n := strings.Count(documents.stdout, "---\n"); n != len(someEvents()) {
		t.Errorf("%d documents", n)
	}
}

// heard tells when something was written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	once sync.Once
	ch   chan struct{}
}

func (h *heard) Write(text []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.once.Do(func() { close(h.ch) })
	return h.text.Write(text)
}

// The time limit is for the first round; after that a watch stays, until Ctrl-C ends it without an error.
func TestWatchOutlivesTheTimeout(t *testing.T) {
	address := serve(t, &fakeFleet{events: someEvents(), hold: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, stderr := &heard{ch: make(chan struct{})}, &bytes.Buffer{}
	ended := make(chan int, 1)
	args := []string{"nodes", "-w", "--aggregator", address, "--insecure-plaintext", "--timeout", "300ms"}
	go func() { ended <- run(ctx, args, func(string) (string, bool) { return "", false }, stdout, stderr) }()
	<-stdout.ch
	select {
	case code := <-ended:
		t.Fatalf("ended with %d: %s", code, stderr)
	case <-time.After(600 * time.Millisecond):
	}
	cancel()
	if code := <-ended; code != 0 || stderr.Len() != 0 {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestWatchWantsAFullListInTime(t *testing.T) {
	fleet := &fakeFleet{events: []*offrampv1.WatchResponse{changed("worker-1", offrampv1.Verdict_VERDICT_READY)}, hold: true}
	got := ask(t, fleet, "nodes", "-w", "--timeout", "200ms")
	got.want(t, 1, "", "no full list")
	if got.stdout != "" {
		t.Errorf("a part was printed: %s", got.stdout)
	}
}

func TestWatchTellsAFailure(t *testing.T) {
	ask(t, &fakeFleet{events: someEvents(), err: status.Error(codes.ResourceExhausted, "too slow a reader")}, "nodes", "-w").
		want(t, 1, "worker-1", "too slow a reader")
}
