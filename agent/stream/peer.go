package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/agent/discover"
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
	// writeBuffer bounds TLS records: the aggregator keeps room for the largest one that a connection ever got.
	writeBuffer = 2 << 10
)

// peer is one aggregator at one address, as this agent sees it.
type peer struct {
	config Config
	// authority is the aggregator as it was named: its certificate has to be for that host, whatever the address.
	authority string
	member    *member
	instance  string
	board     *board
	book      *orders.Book
	claims    *claims
	backoff   backoff
	log       *slog.Logger
	// back is the process for which the peer stays back; empty while it does not.
	back string
}

// newPeer gives a peer what is its own.
func newPeer(common peer, target discover.Target, m *member) *peer {
	own := common
	own.authority, own.member = target.String(), m
	own.backoff = backoff{first: own.config.limits.firstBackoff, most: own.config.limits.maxBackoff, rand: own.config.Rand}
	own.log = own.config.Log.With("aggregator", own.authority)
	if m.address != own.authority {
		own.log = own.log.With("address", m.address)
	}
	return &own
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
		var twin *twinError
		if errors.As(err, &twin) {
			p.stayBack(ctx, twin)
			continue
		}
		p.back = ""
		p.sleepAfter(ctx, lived, err)
	}
}

// stayBack leaves the process to the stream that is there, until that has ended. Now and then the peer looks whether its address
// leads elsewhere.
func (p *peer) stayBack(ctx context.Context, twin *twinError) {
	if p.back != twin.replica {
		p.log.Info("no second stream to an aggregator that has one by another address", "replica", twin.replica)
	}
	p.back = twin.replica
	p.backoff.reset()
	recheck := time.NewTimer(jitter(p.config.limits.recheck, p.config.Rand))
	defer recheck.Stop()
	select {
	case <-recheck.C:
	case <-twin.ended:
		sleep(ctx, p.backoff.next())
	case <-ctx.Done():
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
// connection each time leaves gRPC's own pauses out of ours.
func (p *peer) attempt(ctx context.Context) (lived time.Duration, err error) {
	conn, err := grpc.NewClient("passthrough:///"+strings.ReplaceAll(p.member.address, "%", "%25"), p.dialOptions()...)
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
	// Before the first report, with which the aggregator would end the other stream.
	release, taken := p.claims.take(c.welcome.GetReplica())
	if taken != nil {
		return 0, &twinError{replica: c.welcome.GetReplica(), ended: taken}
	}
	defer release()
	p.log.Info("the aggregator listens", "version", fmt.Sprintf("%.64s", c.welcome.GetAggregatorVersion()), "heartbeat_interval", c.interval, "replica", c.welcome.GetReplica())
	// An aggregator that was away is not to miss this node for longer than it would take to notice a silent one.
	most := min(c.interval, p.config.limits.maxBackoff)
	spread := returnWithin(c.welcome, most/3)
	p.backoff.within(max(most, spread))
	p.backoff.spread(spread)
	p.member.streams(true)
	defer p.member.streams(false)
	began := time.Now()
	err = c.hold(ctx)
	return time.Since(began), err
}

// called is the name that a connection is made with. gRPC refuses one that differs from the name that a certificate has to be
// for, where a flag says that.
func (p *peer) called() string {
	if name := p.config.Credentials.Info().ServerName; name != "" { //nolint:staticcheck // what gRPC compares the authority with
		return name
	}
	return p.authority
}

func (p *peer) dialOptions() []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(p.config.Credentials),
		grpc.WithAuthority(p.called()),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}, p.config.DialOptions...)
}
