package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"offramp.dev/offramp/e2e/fleetsim"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// result is what one run came to.
type result struct {
	nodes    int
	state    int
	empty    fleetsim.Usage
	arrived  time.Duration
	arriving float64 // CPU seconds until the answer was complete

	quiet, changed fleetsim.Usage
	idleShare      float64
	idleRequests   float64 // of the API server, a second
	idleReviews    float64

	// along are samples after a third and two thirds of the changes.
	along                   []fleetsim.Usage
	changes                 int64
	changing                time.Duration
	changeShare             float64
	readiness, pages, heard fleetsim.Latencies
	bytesIn, bytesOut       float64 // of an agent, a minute
	back                    time.Duration
	failed                  int64
	restarted               fleetsim.Usage

	// dead nodes, and how many were known to be silent after the changes.
	dead   int
	silent uint64

	flooded                storm
	asked                  time.Duration
	answered               uint64
	spreadCut, togetherCut storm
}

// total is how many nodes the fleet knows.
func (r *result) total() int { return r.nodes + r.state }

// bench is one run.
type bench struct {
	settings
	*result
	api        *fleetsim.API
	issuer     *fleetsim.Issuer
	dir        string
	aggregator *fleetsim.Aggregator
	fleet      *fleetsim.Fleet
	person     *fleetsim.Person
}

func measure(ctx context.Context, s settings, n int) (*result, error) {
	b := &bench{settings: s, result: &result{nodes: n, state: s.held}}
	defer b.close()
	for _, step := range []func(context.Context) error{b.prepare, b.visit, b.arrive, b.rest, b.flood, b.fanOut, b.change, b.cut, b.restart} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return b.result, nil
}

// prepare starts an API server, an aggregator on its processor, and prepares the fleet.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.issuer, err = fleetsim.NewIssuer(); err != nil {
		return err
	}
	names := fleetsim.Names(b.total())
	b.api = fleetsim.NewAPI(b.issuer, names)
	if b.dir, err = os.MkdirTemp("", "fleetsim-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := b.launch(ctx, ""); err != nil {
		return err
	}
	if b.fleet, err = b.newFleet(ctx, names[:b.nodes]); err != nil {
		return err
	}
	if b.ownCPU >= 0 {
		if err := fleetsim.Pin(b.ownCPU); err != nil {
			return err
		}
	}
	b.person, err = fleetsim.NewPerson(b.aggregator.Address, b.issuer, b.api.Authority())
	if err != nil {
		return err
	}
	time.Sleep(2*time.Second + time.Duration(b.total())*100*time.Microsecond) // the aggregator reads the cluster meanwhile
	b.empty, err = b.aggregator.Usage(ctx)
	return err
}

func (b *bench) newFleet(ctx context.Context, names []string) (*fleetsim.Fleet, error) {
	return fleetsim.New(ctx, fleetsim.Config{
		Names: names, Address: b.aggregator.Address, Authority: b.api.Authority(), Issuer: b.issuer, Skewed: 100, Slow: 1000,
	})
}

// visit lets the nodes come of which only the state is to be held, as many at a time as there may be streams, and leave again.
func (b *bench) visit(ctx context.Context) error {
	names := fleetsim.Names(b.total())[b.nodes:]
	for here := range slices.Chunk(names, max(1, b.nodes)) {
		visitors, err := b.newFleet(ctx, here)
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, completeLimit)
		visitors.Arrive(b.settings.arrive * time.Duration(len(here)) / 1000)
		err = visitors.AwaitReported(limited)
		cancel()
		visitors.Close()
		if err != nil {
			return fmt.Errorf("nodes that come and leave: %w", err)
		}
	}
	return nil
}

func (b *bench) launch(ctx context.Context, listen string) (err error) {
	b.aggregator, err = fleetsim.Start(ctx, fleetsim.Launch{
		Program: b.program, Dir: b.dir, API: b.api, Listen: listen, CPU: b.aggregatorCPU, Args: []string{"--log-level", "info"},
	})
	return err
}

// completeLimit is how long the answer may take to be complete.
const completeLimit = 5 * time.Minute

func (b *bench) arrive(ctx context.Context) error {
	began := time.Now()
	b.fleet.Arrive(b.settings.arrive * time.Duration(b.nodes) / 1000)
	limited, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	if _, err := b.person.AwaitComplete(limited, b.total(), b.state); err != nil {
		return fmt.Errorf("%w; %+v", err, b.fleet.Counts())
	}
	b.arrived = time.Since(began)
	now, err := b.aggregator.Usage(ctx)
	b.arriving = (now.CPU - b.empty.CPU).Seconds()
	return err
}

// rest measures a fleet on which nothing changes.
func (b *bench) rest(ctx context.Context) error {
	before, err := b.aggregator.Usage(ctx)
	if err != nil {
		return err
	}
	b.api.Requests()
	counts := b.fleet.Counts()
	time.Sleep(b.settle)
	requests, reviews := b.api.Requests()
	after := b.fleet.Counts()
	if b.quiet, err = b.aggregator.Usage(ctx); err != nil {
		return err
	}
	b.idleShare = fleetsim.Share(before, b.quiet)
	b.idleRequests, b.idleReviews = float64(requests)/b.settle.Seconds(), float64(reviews)/b.settle.Seconds()
	each := float64(b.nodes) * b.settle.Minutes()
	b.bytesIn, b.bytesOut = float64(after.BytesIn-counts.BytesIn)/each, float64(after.BytesOut-counts.BytesOut)/each
	return nil
}

// silentAfter is how long it takes until a dead node is known to be silent: three heartbeats, the one that was under way, and a look.
const silentAfter = 4*time.Minute + 30*time.Second

// change measures answers while nodes change, with a person who asks, one who watches and one who watches slowly.
func (b *bench) change(ctx context.Context) error {
	before, err := b.aggregator.Usage(ctx)
	if err != nil {
		return err
	}
	counts := b.fleet.Counts()
	limited, cancel := context.WithTimeout(ctx, b.churn)
	defer cancel()
	if b.dieEvery > 0 && b.state == 0 && b.churn >= silentAfter {
		b.dead = b.fleet.Die(b.dieEvery)
	}
	var all sync.WaitGroup
	all.Go(func() { b.fleet.Churn(limited, b.rate, 200) })
	all.Go(func() { b.sample(limited) })
	all.Go(func() { b.readiness, b.pages = b.person.Ask(limited, time.Second) })
	all.Go(func() { _ = b.person.Watch(limited, time.Second, nil, nil) })
	all.Go(func() {
		_ = b.person.Watch(limited, 0, nil, func(node *offrampv1.NodeSummary) {
			if took, ok := b.fleet.Heard(node.GetNode()); ok {
				b.heard = append(b.heard, took)
			}
		})
	})
	all.Wait()
	if b.changed, err = b.aggregator.Usage(ctx); err != nil {
		return err
	}
	b.changing = b.changed.At.Sub(before.At)
	b.changes = b.fleet.Counts().Changes - counts.Changes
	b.changeShare = fleetsim.Share(before, b.changed)
	if b.dead > 0 {
		if b.silent, err = b.person.Silent(ctx); err != nil {
			return err
		}
		return b.revive(ctx)
	}
	return nil
}

// revive brings back the nodes that died, and waits for them.
func (b *bench) revive(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	b.fleet.Revive()
	_, err := b.person.AwaitComplete(limited, b.total(), b.state)
	return err
}

// sample looks at the aggregator after each third of the changes but the last.
func (b *bench) sample(ctx context.Context) {
	for range 2 {
		select {
		case <-time.After(b.churn / 3):
		case <-ctx.Done():
			return
		}
		if usage, err := b.aggregator.Usage(ctx); err == nil {
			b.along = append(b.along, usage)
		}
	}
}

// restart stops the aggregator and starts it again on the same port: everybody comes back, as agents do.
func (b *bench) restart(ctx context.Context) error {
	if !b.settings.restart {
		return nil
	}
	if err := b.aggregator.Stop(); err != nil {
		return err
	}
	counts := b.fleet.Counts()
	began := time.Now()
	if err := b.launch(ctx, b.aggregator.Address); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	if _, err := b.person.AwaitComplete(limited, b.total(), b.state); err != nil {
		return fmt.Errorf("after a restart: %w; %+v", err, b.fleet.Counts())
	}
	b.back = time.Since(began)
	var err error
	b.restarted, err = b.aggregator.Usage(ctx)
	b.failed = b.fleet.Counts().Failed - counts.Failed
	if b.failed > 0 {
		fmt.Printf("attempts and streams ended: %v\n", b.fleet.Counts().Reasons)
	}
	return err
}

func (b *bench) close() {
	if b.person != nil {
		b.person.Close()
	}
	if b.fleet != nil {
		b.fleet.Close()
	}
	if b.aggregator != nil {
		_ = b.aggregator.Stop()
	}
	if b.api != nil {
		b.api.CloseClientConnections()
		b.api.Close()
	}
	_ = os.RemoveAll(b.dir)
}
