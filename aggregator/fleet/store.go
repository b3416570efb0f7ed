package fleet

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Assess judges a node's facts for one target. It is pure; readiness.Assess is the real one.
type Assess func(node *offrampv1.NodeFacts, target offrampv1.Target) *offrampv1.Assessment

// Config says how a Store judges and how long it waits. Assess is required; every other zero value has a default.
type Config struct {
	Assess Assess
	// Now is the aggregator's clock, the only one that silence is judged by. Default time.Now.
	Now func() time.Time
	// HeartbeatInterval is what agents are asked for (default 60 s), SilentAfter how many of them may be missed (default 3).
	HeartbeatInterval time.Duration
	SilentAfter       int
	// ForgetAfter is how long a node may be silent before it is forgotten (default 24 h).
	ForgetAfter time.Duration
	// Cluster is what else is known of the nodes. Default: nothing.
	Cluster Cluster
	// AsksCluster says that the Kubernetes API is asked which nodes there are: until it has told, no answer is complete.
	AsksCluster bool
	// SoakFirst is how long the first node of a pool that switched must be clean and in sync to be done (default 8 h), Soak how
	// long every other one must (default 15 min).
	SoakFirst, Soak time.Duration
	// Log is told of failed assessments. Default slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.HeartbeatInterval <= 0 {
		c.HeartbeatInterval = time.Minute
	}
	if c.SilentAfter <= 0 {
		c.SilentAfter = 3
	}
	if c.ForgetAfter <= 0 {
		c.ForgetAfter = 24 * time.Hour
	}
	if c.Cluster == nil {
		c.Cluster = Alone{}
	}
	if c.SoakFirst <= 0 {
		c.SoakFirst = 8 * time.Hour
	}
	if c.Soak <= 0 {
		c.Soak = 15 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Store is the fleet. Use New. All methods may be called from any goroutine.
//
// Locks are taken in this order: Store.mu, node.mu, then those of interners, watchers and firsts.
type Store struct {
	config Config
	since  time.Time

	sections    *interner[sectionKey, string]
	assessments *interner[facts.Digest, *offrampv1.Assessment]
	profiles    *interner[profile, struct{}]
	watchers    watchers
	index       nodeIndex
	firsts      firsts
	// standings are *[]readiness.Standing that answers take and put back.
	standings sync.Pool
	seed      maphash.Seed
	// asked says for which targets somebody ever asked: those are judged as reports come in, the others are not at all.
	asked [targets]atomic.Bool

	mu    sync.RWMutex
	nodes map[string]*node
	// newest is when a node was last heard of that was not known, or the start.
	newest time.Time
	// roster is nodes by name; nil when nodes came or went since.
	roster *roster
}

// New makes an empty fleet. The target nftables, which is the default one, is judged from the start.
func New(config Config) *Store {
	config = config.withDefaults()
	s := &Store{
		config:      config,
		since:       config.Now(),
		sections:    newInterner[sectionKey, string](),
		assessments: newInterner[facts.Digest, *offrampv1.Assessment](),
		profiles:    newInterner[profile, struct{}](),
		watchers:    watchers{all: map[*Watcher]struct{}{}},
		nodes:       map[string]*node{},
		seed:        maphash.MakeSeed(),
	}
	s.newest = s.since
	s.standings.New = func() any { return &[]readiness.Standing{} }
	s.asked[offrampv1.Target_TARGET_NFTABLES].Store(true)
	return s
}

// HeartbeatInterval is how often a heartbeat is expected of each node.
func (s *Store) HeartbeatInterval() time.Duration { return s.config.HeartbeatInterval }

// Silence is how long a node may say nothing until it counts as silent.
func (s *Store) Silence() time.Duration {
	return time.Duration(s.config.SilentAfter) * s.config.HeartbeatInterval
}

// Run looks for nodes that fell silent, so that watchers hear of it, and forgets those that are silent for too long.
// It returns when ctx ends.
func (s *Store) Run(ctx context.Context) {
	ticker := time.NewTicker(max(s.Silence()/12, 100*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.Sweep()
		}
	}
}

// Sweep is one round of Run.
func (s *Store) Sweep() {
	now := s.config.Now()
	for _, n := range s.sorted().nodes {
		switch silentNow, forget := n.sweep(now, s.Silence(), s.config.ForgetAfter); {
		case forget:
			s.forget(n, now)
		case silentNow:
			s.watchers.tell(n.name)
		}
	}
}

// forget drops a node unless it came back meanwhile.
func (s *Store) forget(n *node, now time.Time) {
	s.mu.Lock()
	gone := n.drop(s, now, s.config.ForgetAfter)
	if gone {
		delete(s.nodes, n.name)
		s.roster = nil
	}
	s.mu.Unlock()
	if gone {
		s.watchers.tell(n.name)
	}
}

func (s *Store) find(name string) *node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.nodes[name]
}
