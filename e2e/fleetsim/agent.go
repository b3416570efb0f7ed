package fleetsim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"offramp.dev/offramp/agent/stream"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// quietScan is the pause between scans that nobody asked for: changes are what makes a simulated agent read.
const quietScan = time.Hour

// agent is one simulated node: the real client code, and a Source that makes up what it reads.
type agent struct {
	fleet   *Fleet
	token   bearer
	skew    time.Duration
	changes chan struct{}

	mu    sync.Mutex
	state State
	conn  *countedConn
	// gone: there is no machine any more from which it could connect.
	gone bool
	stop context.CancelFunc
	// changedAt is when the node last changed and nobody heard of it yet.
	changedAt time.Time
}

// bearer is a token that never changes.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

var _ credentials.PerRPCCredentials = bearer("")

// run is one life of the agent, until ctx ends or somebody kills it.
func (a *agent) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a.mu.Lock()
	a.stop = stop
	name := a.state.Name
	a.mu.Unlock()
	// It fails only on a configuration that cannot work, which the tests would show.
	_ = stream.Run(ctx, stream.Config{
		Addresses: []string{a.fleet.config.Address}, Credentials: a.fleet.credentials, Node: name, AgentVersion: "v0.2.0",
		Source: a, ScanInterval: quietScan, Changes: a.changes, Log: a.fleet.log, Now: a.now, Rand: a.fleet.random,
		DialOptions: a.dialOptions(),
	})
}

// dialOptions give the agent its own address and token, and small buffers: there are very many in this process.
func (a *agent) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(a.dial), grpc.WithPerRPCCredentials(a.token),
		grpc.WithReadBufferSize(0),
		grpc.WithStaticStreamWindowSize(64 << 10), grpc.WithStaticConnWindowSize(64 << 10),
	}
}

// dial connects from the agent's own loopback address.
func (a *agent) dial(ctx context.Context, address string) (net.Conn, error) {
	if a.isGone() {
		return nil, errGone
	}
	a.fleet.counts.dials.Add(1)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: source(a.state.Number)}, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	counted := &countedConn{Conn: conn, counts: &a.fleet.counts, slow: a.fleet.slow(a.state.Number)}
	a.mu.Lock()
	a.conn = counted
	a.mu.Unlock()
	return counted, nil
}

// source is the loopback address of an agent: 250 in each /24.
func source(number int) net.IP {
	return net.IPv4(127, byte(1+number/62500), byte(number/250%250), byte(1+number%250))
}

func (a *agent) now() time.Time { return time.Now().Add(a.skew) }

// Scan implements stream.Source.
func (a *agent) Scan(context.Context) *offrampv1.NodeFacts {
	a.mu.Lock()
	state := a.state
	a.mu.Unlock()
	facts, err := a.fleet.templates.Facts(state, a.now())
	if err != nil {
		return &offrampv1.NodeFacts{Node: state.Name}
	}
	return facts
}

// List implements stream.Source.
func (*agent) List(context.Context, *offrampv1.ListDigest) ([]string, error) {
	return nil, errors.New("a simulated node has no lists")
}

// Detail implements stream.Source.
func (*agent) Detail(_ context.Context, _ *offrampv1.DetailRequest, emit func([]string) error) error {
	return emit([]string{"ipvs TCP 10.96.0.1:443 rr"})
}

// change makes the node report something new.
func (a *agent) change() {
	a.mu.Lock()
	a.state.Version++
	a.changedAt = time.Now()
	a.mu.Unlock()
	select {
	case a.changes <- struct{}{}:
	default:
	}
}

// heard returns how long ago the node changed, once for each change.
func (a *agent) heard() (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.changedAt
	a.changedAt = time.Time{}
	return time.Since(at), !at.IsZero()
}

// cut closes the agent's connection, as a restart of the aggregator does.
func (a *agent) cut() {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

var errGone = errors.New("the simulated machine is gone")

// die leaves the aggregator with a connection on which nothing comes any more, and revive lets the agent come back.
func (a *agent) die() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	if a.conn != nil {
		a.conn.dead.Store(true)
	}
}

func (a *agent) revive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = false
}

func (a *agent) isGone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

func newAgent(f *Fleet, number int, token string) *agent {
	a := &agent{
		fleet: f, token: bearer(token), changes: make(chan struct{}, 1),
		state: State{Name: f.names[number], Address: nodeAddress(number), Number: number},
	}
	if f.config.Skewed > 0 && number%f.config.Skewed == 1 {
		a.skew = time.Duration(rand.IntN(1200)-600) * time.Second
	}
	return a
}

var _ stream.Source = (*agent)(nil)
