package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"offramp.dev/offramp/aggregator/cluster"
	"offramp.dev/offramp/aggregator/compare"
	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/publish"
	"offramp.dev/offramp/aggregator/serve"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// acceptanceInterval is how often accepted findings are read again, compareInterval how often lists are compared.
	acceptanceInterval = 10 * time.Second
	compareInterval    = 15 * time.Second
)

// clusterFlags are the flags that say what is read of the cluster.
type clusterFlags struct {
	namespaces           []string
	poolLabel, accepted  string
	soakFirst, soakOther time.Duration
}

func (c *clusterFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&c.namespaces, "kube-proxy-namespace", nil, "namespace in which kube-proxy's pods and configuration are; may be repeated (default: kube-system and openshift-kube-proxy)")
	flags.StringVar(&c.poolLabel, "pool-label", "", "node label that names a node's pool (default: those of the usual providers)")
	flags.StringVar(&c.accepted, "acceptances-configmap", "offramp-accepted-findings", "ConfigMap in which accepted findings are kept")
	flags.DurationVar(&c.soakFirst, "soak-first", 8*time.Hour, "how long the first node of a pool that switched must be clean and in sync to be done")
	flags.DurationVar(&c.soakOther, "soak", 15*time.Minute, "how long every other node must")
}

// around is what the Kubernetes API adds to the fleet. Its zero value adds nothing.
type around struct {
	client      kubernetes.Interface
	watcher     *cluster.Watcher
	acceptances *cluster.Acceptances
	comparer    *compare.Comparer
	store       *fleet.Store
	server      *serve.Server
	publisher   *publish.Publisher
}

// newAround prepares to read the cluster; without a client it adds nothing.
func (s *runSettings) newAround(client kubernetes.Interface, log *slog.Logger) (*around, error) {
	a := &around{client: client}
	if client == nil {
		return a, nil
	}
	watcher, err := cluster.New(cluster.Config{Client: client, Namespaces: s.cluster.namespaces, PoolLabel: s.cluster.poolLabel, Log: log})
	if err != nil {
		return nil, err
	}
	a.watcher = watcher
	a.acceptances = cluster.NewAcceptances(client, s.identity.namespace, s.cluster.accepted, log)
	a.comparer = compare.New(compare.Config{
		Services: a.services, Log: log,
		Has:     func(node string) bool { return a.store.Has(node) },
		Changed: func(nodes []string) { a.store.Rejudge(nodes) },
		Fetch: func(ctx context.Context, node string, list *offrampv1.ListDigest) ([]string, error) {
			return a.server.List(ctx, node, list)
		},
	})
	return a, nil
}

// services are those of the cluster, once they are known.
func (a *around) services() ([]*offrampv1.ClusterService, bool) {
	for _, source := range a.watcher.Facts().GetSources() {
		if source.GetKind() == "services" {
			return a.watcher.Facts().GetServices(), source.GetState() == offrampv1.SectionState_SECTION_STATE_PRESENT
		}
	}
	return nil, false
}

// Facts implements fleet.Cluster.
func (a *around) Facts() *offrampv1.ClusterFacts {
	if a.watcher == nil {
		return nil
	}
	return a.watcher.Facts()
}

// Acceptances implements fleet.Cluster.
func (a *around) Acceptances() []*offrampv1.Acceptance {
	if a.acceptances == nil {
		return nil
	}
	return a.acceptances.List()
}

// assess judges a node with what the cluster says about it.
func (a *around) assess(node *offrampv1.NodeFacts, target offrampv1.Target) *offrampv1.Assessment {
	if a.comparer == nil {
		return readiness.Assess(node, target)
	}
	return readiness.AssessIn(node, target, a.comparer.Around(node))
}

// serving adds to a server what only the API can answer.
func (a *around) serving(config serve.Config) serve.Config {
	config.Cluster, config.Results = a, a.result
	if a.client == nil {
		return config
	}
	config.Acceptances = a.acceptances
	config.EndpointNames = func(ctx context.Context, namespace, service string) (map[string]string, error) {
		return cluster.EndpointNames(ctx, a.client, namespace, service)
	}
	return config
}

// runs are to run for as long as the server does.
func (a *around) runs() []func(context.Context) error {
	if a.client == nil {
		return nil
	}
	return []func(context.Context) error{
		a.watcher.Run,
		a.publishes,
		func(ctx context.Context) error { a.acceptances.Run(ctx, acceptanceInterval); return nil },
		func(ctx context.Context) error { a.comparer.Run(ctx, compareInterval); return nil },
	}
}
