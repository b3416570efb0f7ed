package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"offramp.dev/offramp/e2e/fleetsim"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// result is what one run came to.
type result struct {
	nodes    int
	empty    fleetsim.Usage
	arrived  time.Duration
	arriving float64 // CPU seconds until the answer was complete

	quiet, changed fleetsim.Usage
	idleShare      float64
	idleRequests   float64 // of the API server, a second
	idleReviews    float64

	changes                 int64
	changeShare             float64
	readiness, pages, heard fleetsim.Latencies
	bytesIn, bytesOut       float64 // of an agent, a minute
	back                    time.Duration
	failed                  int64
	restarted               fleetsim.Usage
}

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
	b := &bench{settings: s, result: &result{nodes: n}}
	defer b.close()
	for _, step := range []func(context.Context) error{b.prepare, b.arrive, b.rest, b.change, b.restart} {
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
	names := fleetsim.Names(b.nodes)
	b.api = fleetsim.NewAPI(b.issuer, names)
	if b.dir, err = os.MkdirTemp("", "fleetsim-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := b.launch(ctx, ""); err != nil {
		return err
	}
	if b.fleet, err = fleetsim.New(ctx, fleetsim.Config{
		Names: names, Address: b.aggregator.Address, Authority: b.api.Authority(), Issuer: b.issuer, Skewed: 100, Slow: 1000,
	}); err != nil {
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
	time.Sleep(2 * time.Second) // the aggregator reads the cluster meanwhile
	b.empty, err = b.aggregator.Usage(ctx)
	return err
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
	if _, err := b.person.AwaitComplete(limited, b.nodes); err != nil {
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

// change measures answers while nodes change, with a person who asks, one who watches and one who watches slowly.
func (b *bench) change(ctx context.Context) error {
	before, counts := b.quiet, b.fleet.Counts()
	limited, cancel := context.WithTimeout(ctx, b.churn)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { b.fleet.Churn(limited, b.rate, 200) })
	all.Go(func() { b.readiness, b.pages = b.person.Ask(limited, time.Second) })
	all.Go(func() { _ = b.person.Watch(limited, time.Second, nil) })
	all.Go(func() {
		_ = b.person.Watch(limited, 0, func(node *offrampv1.NodeSummary) {
			if took, ok := b.fleet.Heard(node.GetNode()); ok {
				b.heard = append(b.heard, took)
			}
		})
	})
	all.Wait()
	var err error
	if b.changed, err = b.aggregator.Usage(ctx); err != nil {
		return err
	}
	b.changes = b.fleet.Counts().Changes - counts.Changes
	b.changeShare = fleetsim.Share(before, b.changed)
	return nil
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
	if _, err := b.person.AwaitComplete(limited, b.nodes); err != nil {
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
