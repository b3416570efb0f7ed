package stream

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/agent/orders"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// maxMessage bounds messages in both directions (agent.proto).
	maxMessage = 1 << 20
	// keepaliveTime is how long a connection may be quiet before we ask whether the aggregator lives, keepaliveTimeout how
	// long it may take to answer. Heartbeats are more frequent than that, so it is hardly ever asked.
	keepaliveTime    = 5 * time.Minute
	keepaliveTimeout = 20 * time.Second
)

// peer is one aggregator, as this agent sees it.
type peer struct {
	config   Config
	address  string
	instance string
	board    *board
	book     *orders.Book
	backoff  backoff
	log      *slog.Logger
}

// run keeps a stream open until ctx ends.
func (p *peer) run(ctx context.Context) {
	if !p.waitForScan(ctx) {
		return
	}
	for {
		lived, err := p.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		p.sleepAfter(ctx, lived, err)
	}
}

func (p *peer) waitForScan(ctx context.Context) bool {
	latest, newer := p.board.look()
	if latest != nil {
		return true
	}
	select {
	case <-newer:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *peer) sleepAfter(ctx context.Context, lived time.Duration, err error) {
	if lived >= p.config.limits.healthy {
		p.backoff.reset()
	}
	pause := p.backoff.next()
	if status.Code(err) == codes.Aborted {
		// Another agent says that it is this node. Fighting over it would only make the fleet flicker.
		pause = jitter(p.config.limits.maxBackoff, p.config.Rand)
	}
	p.log.Warn("no stream to the aggregator", "status", status.Code(err).String(), "reason", status.Convert(err).Message(),
		"lived", lived.Round(time.Millisecond), "next_attempt_in", pause.Round(time.Millisecond))
	sleep(ctx, pause)
}

// attempt makes a connection of its own for one stream and returns how long the stream lived once it was welcome. A new
// connection each time asks the resolver again and leaves gRPC's own pauses out of ours.
func (p *peer) attempt(ctx context.Context) (lived time.Duration, err error) {
	conn, err := grpc.NewClient("passthrough:///"+p.address, p.dialOptions()...)
	if err != nil {
		return 0, fmt.Errorf("prepare the connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := p.open(ctx, cancel, offrampv1.NewAgentServiceClient(conn))
	if err != nil {
		return 0, err
	}
	p.log.Info("the aggregator listens", "version", c.welcome.GetAggregatorVersion(), "heartbeat_interval", c.interval)
	// An aggregator that was away is not to miss this node for longer than it would take to notice a silent one.
	p.backoff.within(min(c.interval, p.config.limits.maxBackoff))
	began := time.Now()
	err = c.hold(ctx)
	return time.Since(began), err
}

func (p *peer) dialOptions() []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(p.config.Credentials),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}, p.config.DialOptions...)
}
