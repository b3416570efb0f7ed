package fleetsim

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

// The bounds are counts, and so the same on every machine: measured, plus a tenth or so. Whoever makes a node dearer has to
// say so here; docs/performance.md has what it comes to in resident memory.
const (
	checkedNodes = 2000
	// maxGoroutines are gRPC's three for a connection and the one of its stream, and the aggregator's own, which come and go.
	maxGoroutines = 4.05
	// maxStacks and maxHeap are KiB for a node, with hardly any garbage (GOGC=10) and without what an empty aggregator has.
	maxStacks = 21
	maxHeap   = 45
	// maxSent and maxReceived are the bytes of an agent, from the first of TLS to the report; maxWrites the pieces it sends them in.
	maxSent, maxReceived = 12_000, 3_000
	maxWrites            = 10
	// maxObjects and maxBytes are those allocated for a changed report: received, judged, told to a watcher.
	maxObjects, maxBytes = 2_200, 150 << 10
)

// TestANodeCostsWhatItMay counts what 2,000 agents cost one aggregator.
func TestANodeCostsWhatItMay(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 agents take half a minute")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s := stage(ctx, t, checkedNodes, "GOGC=10")
	empty := s.usage(ctx)
	s.fleet.Arrive(5 * time.Second)
	if _, err := s.person.AwaitComplete(ctx, checkedNodes, 0); err != nil {
		t.Fatal(err)
	}
	came := s.fleet.Counts()
	full := s.usage(ctx)
	each := func(from, to float64) float64 { return (to - from) / checkedNodes }
	within(t, "goroutines of a node", each(empty.Goroutines, full.Goroutines), maxGoroutines)
	within(t, "KiB of stacks of a node", each(empty.Stacks, full.Stacks)/1024, maxStacks)
	within(t, "KiB of heap of a node", each(empty.HeapInUse, full.HeapInUse)/1024, maxHeap)
	within(t, "bytes sent by an agent until it is known", float64(came.BytesOut)/checkedNodes, maxSent)
	within(t, "bytes received by it", float64(came.BytesIn)/checkedNodes, maxReceived)
	within(t, "pieces sent by it", float64(came.Writes)/checkedNodes, maxWrites)
	if came.Failed != 0 || came.Lost != 0 || came.Dials != checkedNodes {
		t.Errorf("not every agent came at its first attempt: %+v", came)
	}
	s.changes(ctx, t)
}

// changes counts what changed reports take.
func (s *staged) changes(ctx context.Context, t *testing.T) {
	t.Helper()
	const changes = 1000
	before, counted := s.usage(ctx), s.fleet.Counts()
	for number := range changes {
		s.fleet.Change(number)
		pause(ctx, 2*time.Millisecond)
	}
	for s.fleet.Counts().Writes < counted.Writes+changes && ctx.Err() == nil {
		pause(ctx, 10*time.Millisecond)
	}
	pause(ctx, time.Second)
	after := s.usage(ctx)
	within(t, "objects made for a changed report", (after.Objects-before.Objects)/changes, maxObjects)
	within(t, "KiB made for a changed report", (after.Allocated-before.Allocated)/changes/1024, maxBytes>>10)
	if now := s.fleet.Counts(); now.Lost != 0 || now.Changes-counted.Changes != changes {
		t.Errorf("after the changes: %+v", now)
	}
}

func within(t *testing.T, what string, got, most float64) {
	t.Helper()
	t.Logf("%s: %.1f of at most %.1f", what, got, most)
	if got > most {
		t.Errorf("%s: %.1f, more than %.1f", what, got, most)
	}
}

// staged is an aggregator with a fleet that has not arrived.
type staged struct {
	*testing.T
	api        *API
	aggregator *Aggregator
	fleet      *Fleet
	person     *Person
}

func stage(ctx context.Context, t *testing.T, n int, env ...string) *staged {
	t.Helper()
	if _, err := RaiseLimits(); err != nil {
		t.Fatal(err)
	}
	s := &staged{T: t}
	issuer, err := NewIssuer()
	s.must(err)
	s.api = NewAPI(issuer, Names(n))
	t.Cleanup(func() { s.api.CloseClientConnections(); s.api.Close() })
	program := filepath.Join(t.TempDir(), "offramp-aggregator")
	s.must(lab.GoBuild(ctx, "offramp.dev/offramp/aggregator", program))
	s.aggregator, err = Start(ctx, Launch{Program: program, Dir: t.TempDir(), API: s.api, CPU: -1, Env: env, Log: os.Stderr})
	s.must(err)
	t.Cleanup(func() { _ = s.aggregator.Stop() })
	s.fleet, err = New(ctx, Config{Names: Names(n), Address: s.aggregator.Address, Authority: s.api.Authority(), Issuer: issuer})
	s.must(err)
	t.Cleanup(s.fleet.Close)
	s.person, err = NewPerson(s.aggregator.Address, issuer, s.api.Authority())
	s.must(err)
	t.Cleanup(s.person.Close)
	return s
}

func (s *staged) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// usage asks twice: the answer itself makes garbage, and the second one is made after it was collected.
func (s *staged) usage(ctx context.Context) Usage {
	s.Helper()
	_, err := s.aggregator.Usage(ctx)
	s.must(err)
	u, err := s.aggregator.Usage(ctx)
	s.must(err)
	return u
}
