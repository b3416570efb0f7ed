package publish

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"offramp.dev/offramp/aggregator/fleet"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Fleet is what every node last said; *fleet.Store is the real one.
type Fleet interface {
	// Each calls look with every node, and Readiness sums all up.
	Each(target offrampv1.Target, look func(fleet.Look))
	Readiness(target offrampv1.Target, filter fleet.Filter, version string) *offrampv1.GetReadinessResponse
}

// Cluster is what the Kubernetes API says; *cluster.Watcher is the real one.
type Cluster interface {
	// Facts are the Node objects and how reading them went; nil before the first reading.
	Facts() *offrampv1.ClusterFacts
	// NodeUID is the UID of a Node object, false for one that is not there.
	NodeUID(name string) (types.UID, bool)
}

// Config says what is published and where. Zero durations have defaults.
type Config struct {
	// Client and Objects reach the API server. Required.
	Client  kubernetes.Interface
	Objects dynamic.Interface
	Fleet   Fleet
	Cluster Cluster
	// Namespace is that of the Lease, Identity who this replica is in it: unique for each process.
	Namespace, Identity string
	// Events, FleetObject and NodeLabels say what is written.
	Events, FleetObject, NodeLabels bool
	// WarmUp is after which time of listening a node that was not heard of is missing, and not only late. Required.
	WarmUp time.Duration
	// Log is required.
	Log *slog.Logger
	// Now is the aggregator's clock. Default time.Now.
	Now func() time.Time

	pace pace
}

// pace is how fast things go. Only tests change it.
type pace struct {
	// round is how often the fleet is looked at, status how often at most the Fleet is read and written.
	round, status time.Duration
	// settle is how long a node must have been known until what is found on it is news: the sections of a first report, and what it is
	// compared with, come one after the other.
	settle time.Duration
	// lease, renew and retry are those of the Lease; call bounds one write, and is less than lease-renew, so that a write that was
	// begun in time has ended when somebody else may hold the Lease.
	lease, renew, retry, call time.Duration
	// kept is how long a replica that may not write keeps news, in case it takes over: longer than lease and retry.
	kept time.Duration
	// events and labels bound what is written in one round.
	events, labels int
}

func defaultPace() pace {
	return pace{
		round: 5 * time.Second, status: 10 * time.Second, settle: time.Minute,
		lease: 15 * time.Second, renew: 10 * time.Second, retry: 2 * time.Second, call: 4 * time.Second,
		kept: time.Minute, events: 20, labels: 50,
	}
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.pace == (pace{}) {
		c.pace = defaultPace()
	}
	return c
}
