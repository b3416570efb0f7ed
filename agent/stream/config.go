package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"offramp.dev/offramp/agent/discover"
	"offramp.dev/offramp/agent/orders"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Source reads the node. Its methods must return soon after ctx ends; they may be called at the same time.
type Source interface {
	// Scan reads every section. What could not be read says so in its section.
	Scan(ctx context.Context) *offrampv1.NodeFacts
	// List reads a list in full. It fails when the list is not the one that the digest names any more.
	List(ctx context.Context, wanted *offrampv1.ListDigest) ([]string, error)
	// Detail reads more about one Service, ipset or chain and hands it to emit, part by part, in its order. It returns the
	// error of emit when that fails, and says in its error when what it handed out is not all.
	Detail(ctx context.Context, request *offrampv1.DetailRequest, emit func(items []string) error) error
}

// Config says what to report, and to whom.
type Config struct {
	// Addresses of aggregators, "host:port", no two alike. A name is looked up again and again; each address that it has is a
	// replica and gets a stream of its own. At least one.
	Addresses []string
	// Finder looks names up. The zero value asks the host's resolver and remembers nothing beyond the process.
	Finder discover.Finder
	// Credentials of the connections: TLS, or plaintext where somebody asked for it. Required.
	Credentials credentials.TransportCredentials
	// Node is the Kubernetes node name, AgentVersion the version of this program.
	Node, AgentVersion string
	// Source is what is read. Required.
	Source Source
	// Orders decides on orders; whoever makes it runs it. Nil: every order is refused.
	Orders *orders.Book
	// ScanInterval is the pause between two scans (default 30 s). Each pause is up to a tenth shorter or longer.
	ScanInterval time.Duration
	// Changes, when it is not nil, receives when a scan is worth it before the pause is over.
	Changes <-chan struct{}
	// Log is told of connections that come and go. Default slog.Default.
	Log *slog.Logger
	// Now is the node's clock. Default time.Now.
	Now func() time.Time
	// Rand gives numbers from 0 up to 1, for jitter. It may be called from many goroutines. Default math/rand/v2.
	Rand func() float64
	// DialOptions are added to those of every connection, by tests.
	DialOptions []grpc.DialOption

	limits  limits
	targets []discover.Target
}

// limits are the times that only tests change.
type limits struct {
	// firstBackoff and maxBackoff bound the pauses between two attempts to connect.
	firstBackoff, maxBackoff time.Duration
	// healthy is how long a stream must have lived for the next attempt to come soon again.
	healthy time.Duration
	// welcome is how long an aggregator may take to answer Hello.
	welcome time.Duration
	// list is how long a list may take to read.
	list time.Duration
	// answer is how long a question may take from the first look to the last part taken.
	answer time.Duration
	// recheck is how long a peer stays back from an aggregator that has a stream by another address; 0 takes recheckAfter.
	recheck time.Duration
	// stale is the age of the last scan from which on no heartbeat vouches for it any more; 0 takes staleAfter.
	stale time.Duration
}

// The pauses: the first attempts of ten thousand agents after a restart spread over seconds, the last over a minute, well
// below the three minutes after which a node counts as silent.
func defaultLimits() limits {
	return limits{
		firstBackoff: 2 * time.Second, maxBackoff: time.Minute, healthy: 30 * time.Second,
		welcome: 20 * time.Second, list: 7 * time.Second, answer: 30 * time.Second,
	}
}

const defaultScanInterval = 30 * time.Second

// staleAfter is when a scan is too old to be vouched for: a node whose scans hang must fall silent, not look well.
func staleAfter(scanInterval time.Duration) time.Duration { return max(10*time.Minute, 5*scanInterval) }

func (c Config) withDefaults() (Config, error) {
	if len(c.Addresses) == 0 || c.Credentials == nil || c.Source == nil {
		return c, errors.New("reporting needs an aggregator's address, credentials and something to report")
	}
	if err := facts.CheckNodeName(c.Node); err != nil {
		return c, err
	}
	var err error
	if c.targets, err = Targets(c.Addresses); err != nil {
		return c, err
	}
	if c.ScanInterval <= 0 {
		c.ScanInterval = defaultScanInterval
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Finder.Log == nil {
		c.Finder.Log = c.Log
	}
	if c.limits == (limits{}) {
		c.limits = defaultLimits()
	}
	if c.limits.answer == 0 {
		c.limits.answer = defaultLimits().answer
	}
	if c.limits.recheck == 0 {
		c.limits.recheck = recheckAfter
	}
	if c.limits.stale == 0 {
		c.limits.stale = staleAfter(c.ScanInterval)
	}
	return c, nil
}

// Targets reads the addresses of aggregators, each "host:port" and different from the others.
func Targets(addresses []string) ([]discover.Target, error) {
	targets := make([]discover.Target, 0, len(addresses))
	for _, address := range addresses {
		target, err := discover.Parse(address)
		if err != nil {
			return nil, err
		}
		if slices.Contains(targets, target) {
			return nil, fmt.Errorf("the aggregator %s is named twice", target)
		}
		targets = append(targets, target)
	}
	return targets, nil
}
