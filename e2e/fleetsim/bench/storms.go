package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"offramp.dev/offramp/e2e/fleetsim"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// storm is what happened while everybody did something at once.
type storm struct {
	took   time.Duration
	failed int64
	share  float64
}

// flooding is the time within which each node changes, as when a DaemonSet is rolled or a Service is deleted.
const flooding = time.Minute

// flood changes every node within a minute and waits until a watcher has heard of all.
func (b *bench) flood(ctx context.Context) error {
	if b.nodes < b.storms {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	before, err := b.aggregator.Usage(ctx)
	if err != nil {
		return err
	}
	heard, synced := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	all.Go(func() { _ = b.person.Watch(watching, 0, once(synced), b.countHeard(heard)) })
	select {
	case <-synced:
	case <-ctx.Done():
		return fmt.Errorf("a watcher has not seen all nodes: %w", ctx.Err())
	}
	b.fleet.ForgetHeard()
	began := time.Now()
	b.fleet.ChangeAll(flooding)
	select {
	case <-heard:
	case <-ctx.Done():
		return fmt.Errorf("a watcher has not heard of all changes: %w", ctx.Err())
	}
	b.flooded.took = time.Since(began)
	after, err := b.aggregator.Usage(ctx)
	b.flooded.share = fleetsim.Share(before, after)
	return err
}

func once(done chan struct{}) func() { return sync.OnceFunc(func() { close(done) }) }

// countHeard closes done when a watcher has heard of a change of every node.
func (b *bench) countHeard(done chan struct{}) func(*offrampv1.NodeSummary) {
	left := b.nodes
	return func(node *offrampv1.NodeSummary) {
		if _, changed := b.fleet.Heard(node.GetNode()); changed {
			if left--; left == 0 {
				close(done)
			}
		}
	}
}

// healthy is how long a stream must have lived for its agent to come back as after the first loss.
const healthy = 35 * time.Second

// fanOut asks all nodes for what they have of one Service.
func (b *bench) fanOut(ctx context.Context) error {
	if b.nodes < b.storms {
		return nil
	}
	began := time.Now()
	answered, err := b.person.AskAll(ctx)
	b.asked, b.answered = time.Since(began), answered
	return err
}

// cut closes all connections at once while the aggregator goes on, and waits until all are back: spread, as agents do it, and then all
// at the same moment.
func (b *bench) cut(ctx context.Context) error {
	if b.nodes < b.storms {
		return nil
	}
	for _, together := range []bool{false, true} {
		b.fleet.Together(together)
		time.Sleep(healthy)
		one, err := b.cutOnce(ctx)
		if err != nil {
			return err
		}
		if together {
			b.togetherCut = one
		} else {
			b.spreadCut = one
		}
	}
	b.fleet.Together(false)
	time.Sleep(healthy)
	return nil
}

func (b *bench) cutOnce(ctx context.Context) (s storm, err error) {
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	counts := b.fleet.Counts()
	began := time.Now()
	b.fleet.CutAll()
	if err := b.fleet.AwaitWelcomes(ctx, counts, b.nodes); err != nil {
		return s, fmt.Errorf("after all connections were cut: %w", err)
	}
	if _, err := b.person.AwaitComplete(ctx, b.total(), b.state); err != nil {
		return s, err
	}
	s.took, s.failed = time.Since(began), b.fleet.Counts().Failed-counts.Failed
	return s, nil
}
