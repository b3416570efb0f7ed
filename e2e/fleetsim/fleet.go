package fleetsim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
)

// Config says which fleet to simulate.
type Config struct {
	// Names of the nodes; see Names. Required.
	Names []string
	// Address of the aggregator, host:port, and Authority, the PEM certificates that its own is checked against. Required.
	Address, Authority string
	// Issuer signs the agents' tokens. Required.
	Issuer *Issuer
	// Skewed and Slow say how many nodes there are for each one with a wrong clock (by up to ten minutes) and with a slow
	// connection (slowPeer for each piece); 0 for none.
	Skewed, Slow int
}

// slowPeer is how long a slow connection takes for each piece that is read or written.
const slowPeer = 100 * time.Millisecond

// serverName is in the certificate that the aggregator makes for itself.
const serverName = "offramp-aggregator.offramp.svc"

// Fleet is a simulated fleet. Use New, then Arrive; Close ends it.
type Fleet struct {
	config      Config
	names       []string
	templates   *Templates
	credentials credentials.TransportCredentials
	log         *slog.Logger
	counts      counts
	agents      []*agent
	numbers     map[string]int
	together    atomic.Bool

	ctx    context.Context //nolint:containedctx // the life of the fleet, which agents that are restarted belong to, too
	cancel context.CancelFunc
	alive  sync.WaitGroup
}

// Names are n names of nodes, as long as those of a cloud.
func Names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/62500, i/250%250, i%250)
	}
	return names
}

func nodeAddress(number int) string {
	return fmt.Sprintf("10.%d.%d.%d", 100+number/62500, number/250%250, 1+number%250)
}

// New prepares a fleet: it signs the tokens and connects nothing yet.
func New(ctx context.Context, config Config) (*Fleet, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(config.Authority)) {
		return nil, errors.New("a simulated fleet needs the authority that signed the aggregator's certificate")
	}
	templates, err := LoadTemplates()
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		config: config, names: config.Names, templates: templates, agents: make([]*agent, len(config.Names)),
		credentials: newNamed(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}),
	}
	f.log = slog.New(ear{&f.counts})
	f.numbers = make(map[string]int, len(f.names))
	for number, name := range f.names {
		f.numbers[name] = number
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f, f.sign()
}

// sign makes a token for each agent, with every processor there is.
func (f *Fleet) sign() error {
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for number, name := range f.names {
		group.Go(func() error {
			token, err := f.config.Issuer.Token("offramp-agent", name, time.Now())
			if err == nil {
				f.agents[number] = newAgent(f, number, token)
			}
			return err
		})
	}
	return group.Wait()
}

// Arrive starts all agents, spread evenly over a time, as the rollout of a DaemonSet does.
func (f *Fleet) Arrive(over time.Duration) {
	each := over / time.Duration(max(1, len(f.agents)))
	for _, a := range f.agents {
		f.start(a)
		if each > 0 {
			pause(f.ctx, each)
		}
	}
}

func (f *Fleet) start(a *agent) { f.alive.Go(func() { a.run(f.ctx) }) }

// Restart ends an agent and starts it again, with a new instance.
func (f *Fleet) Restart(number int) {
	a := f.agents[number]
	a.mu.Lock()
	stop := a.stop
	a.mu.Unlock()
	if stop != nil {
		stop()
	}
	f.start(a)
}

// CutAll closes every connection at once.
func (f *Fleet) CutAll() {
	for _, a := range f.agents {
		a.cut()
	}
}

// Together makes the agents draw their pauses alike, so that they all come at once, or at random again, as real ones do.
func (f *Fleet) Together(alike bool) { f.together.Store(alike) }

func (f *Fleet) random() float64 {
	if f.together.Load() {
		return 0.5
	}
	return rand.Float64()
}

// Die takes one node in every so many away without a word: its connection stays, and nothing comes on it. It returns how many.
func (f *Fleet) Die(every int) (dead int) {
	for number := every / 2; number < len(f.agents); number += every {
		f.agents[number].die()
		dead++
	}
	return dead
}

// Revive brings back who died.
func (f *Fleet) Revive() {
	for _, a := range f.agents {
		a.revive()
	}
}

// AwaitWelcomes waits until so many streams were welcomed since some counts were taken.
func (f *Fleet) AwaitWelcomes(ctx context.Context, since Counts, streams int) error {
	for f.counts.welcomed.Load() < since.Welcomed+int64(streams) {
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%d of %d streams: %w", f.counts.welcomed.Load()-since.Welcomed, streams, ctx.Err())
		}
	}
	return nil
}

// AwaitReported waits until every agent was welcomed and has had a moment to report.
func (f *Fleet) AwaitReported(ctx context.Context) error {
	if err := f.AwaitWelcomes(ctx, Counts{}, len(f.agents)); err != nil {
		return err
	}
	pause(ctx, 5*time.Second)
	return ctx.Err()
}

// Churn changes nodes at random, rate of them a second, and restarts one agent for every restartEvery changes, until ctx ends.
func (f *Fleet) Churn(ctx context.Context, rate float64, restartEvery int) {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.Change(rand.IntN(len(f.agents)))
		if restartEvery > 0 && n%restartEvery == 0 {
			f.Restart(rand.IntN(len(f.agents)))
		}
	}
}

// Change makes a node report something new.
func (f *Fleet) Change(number int) {
	f.counts.changes.Add(1)
	f.agents[number].change()
}

// Heard says how long ago a node changed of which a watcher heard just now; false where that was told before.
func (f *Fleet) Heard(name string) (time.Duration, bool) {
	number, known := f.numbers[name]
	if !known {
		return 0, false
	}
	return f.agents[number].heard()
}

// ForgetHeard forgets the changes that nobody heard of yet.
func (f *Fleet) ForgetHeard() {
	for _, a := range f.agents {
		a.heard()
	}
}

// ChangeAll changes every node once, spread evenly over a time.
func (f *Fleet) ChangeAll(over time.Duration) {
	began := time.Now()
	for number := range f.agents {
		f.Change(number)
		pause(f.ctx, time.Until(began.Add(over*time.Duration(number)/time.Duration(len(f.agents)))))
	}
}

// Counts are what happened since the start.
func (f *Fleet) Counts() Counts { return f.counts.read() }

// Close ends all agents and waits for them.
func (f *Fleet) Close() {
	f.cancel()
	f.alive.Wait()
}

func (f *Fleet) slow(number int) time.Duration {
	if f.config.Slow > 0 && number%f.config.Slow == 2 {
		return slowPeer
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
