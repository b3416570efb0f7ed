package publish

import (
	"context"
	"errors"
	"sync"
	"time"

	"offramp.dev/offramp/aggregator/fleet"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Publisher writes to Kubernetes what the fleet is, while this replica holds the Lease. Use New, then Run.
type Publisher struct {
	config     Config
	lease      *lease
	observer   *observer
	news       *queue
	results    *queue
	complaints *complaints
	// started is since when this replica listens.
	started time.Time
	// target is where the fleet is going, as the Fleet said when it was asked.
	target offrampv1.Target
	asked  time.Time
	// labelled is what was written on Nodes and may not be seen yet.
	labelled map[string]written
}

// New makes a Publisher that does nothing yet.
func New(config Config) (*Publisher, error) {
	config = config.withDefaults()
	if config.Client == nil || config.Objects == nil || config.Identity == "" || config.WarmUp <= 0 {
		return nil, errors.New("publishing needs clients of the API server, an identity, and a time to warm up")
	}
	complaints := &complaints{log: config.Log, last: map[string]string{}}
	return &Publisher{
		config: config, lease: newLease(config, complaints), observer: newObserver(config.pace.settle), news: &queue{}, results: &queue{},
		complaints: complaints, started: config.Now(),
		target: offrampv1.Target_TARGET_NFTABLES, labelled: map[string]written{},
	}, nil
}

// Result takes note of how an order ended that was passed on here. It does not block.
func (p *Publisher) Result(node string, result *offrampv1.OrderResult) {
	if news, ok := fromResult(node, result); ok && p.config.Events {
		news.seen = p.config.Now()
		p.results.add(news)
	}
}

// Run publishes until ctx ends; then it has ended what it was writing, and given the Lease back.
func (p *Publisher) Run(ctx context.Context) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	warm, failed := make(chan struct{}), make(chan error, 1)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-warm:
			failed <- p.lease.contend(electing)
		case <-electing.Done():
			failed <- nil
		}
	})
	p.rounds(ctx, warm)
	// The Lease is given back when nothing is being written any more.
	stop()
	group.Wait()
	return <-failed
}

// rounds looks and writes until ctx ends. It closes warm when this replica may stand for election.
func (p *Publisher) rounds(ctx context.Context, warm chan struct{}) {
	ticker := time.NewTicker(p.config.pace.round)
	defer ticker.Stop()
	for standing := false; ; {
		v := p.look()
		if !standing && v.warm {
			standing = true
			close(warm)
		}
		p.write(ctx, v)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// view is the fleet as one round sees it.
type view struct {
	now    time.Time
	target offrampv1.Target
	// nodesRead says that the Node objects are known, warm that what is missing is missing and not only late.
	nodesRead, warm bool
	at              arrived
	// want are the labels of the nodes, where they are asked for.
	want map[string]labels
}

func (p *Publisher) look() *view {
	v := &view{now: p.config.Now(), target: p.target}
	facts := p.config.Cluster.Facts()
	for _, source := range facts.GetSources() {
		if source.GetKind() == "nodes" {
			v.nodesRead = source.GetState() == offrampv1.SectionState_SECTION_STATE_PRESENT
		}
	}
	if p.config.NodeLabels {
		v.want = make(map[string]labels, len(facts.GetNodes()))
	}
	heard, late := 0, 0
	p.observer.begin(v.target, v.now)
	p.config.Fleet.Each(v.target, func(l fleet.Look) {
		p.node(v, l)
		switch {
		case l.Summary.GetAssessment().GetPhase() == offrampv1.Phase_PHASE_NOT_APPLICABLE:
		case l.Summary.GetLastSeen() == nil:
			late++
		default:
			heard++
		}
	})
	p.observer.end()
	all := v.nodesRead && heard > 0 && late == 0
	v.warm = facts != nil && (all || v.now.Sub(p.started) >= p.config.WarmUp)
	return v
}

// node takes one node into a view.
func (p *Publisher) node(v *view, l fleet.Look) {
	news := p.observer.look(l, v.now)
	if p.config.Events {
		p.news.add(news...)
	}
	assessment := l.Summary.GetAssessment()
	if assessment.GetPhase() != offrampv1.Phase_PHASE_NOT_APPLICABLE {
		v.at.add(assessment.GetVerify())
	}
	if p.config.NodeLabels {
		v.want[l.Summary.GetNode()] = labelsOf(l.Summary, v.target)
	}
}

// write writes what this replica may.
func (p *Publisher) write(ctx context.Context, v *view) {
	p.tell(ctx, p.results, p.direct)
	if p.lease.held() == nil {
		p.forgetOld(v.now.Add(-p.config.pace.kept))
		p.follow(ctx, v)
		return
	}
	p.forgetOld(time.Time{})
	p.tell(ctx, p.news, p.lease.do)
	if p.config.FleetObject {
		p.object(ctx, v)
	}
	// Not for a target that it has just turned out not to be.
	if p.config.NodeLabels && p.target == v.target {
		p.label(ctx, v.want, v.now)
	}
}
