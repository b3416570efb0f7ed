package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"offramp.dev/offramp/aggregator/auth/apiserver"
	"offramp.dev/offramp/aggregator/publish"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// publishFlags say what is written to Kubernetes.
type publishFlags struct{ events, fleetObject, nodeLabels bool }

func (p *publishFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&p.events, "events", true, "in a cluster, tell of switches, clean-ups, new blockers and leftovers by Events about the Nodes")
	flags.BoolVar(&p.fleetObject, "fleet-object", true, "in a cluster, keep the status of the object Fleet \"cluster\", for kubectl wait")
	flags.BoolVar(&p.nodeLabels, "node-labels", false, "label Nodes with their mode, phase and readiness; wants the right to patch Nodes")
}

// publish makes what writes to Kubernetes; nil where nothing is to be written, or no API server is asked.
func (s *runSettings) publish(a *around, log *slog.Logger) (*publish.Publisher, error) {
	if a.client == nil || s.publishing == (publishFlags{}) {
		return nil, nil
	}
	objects, err := apiserver.Objects(s.identity.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the Kubernetes API server: %w", err)
	}
	made, err := publish.New(publish.Config{
		Client: a.client, Objects: objects, Fleet: a.store, Cluster: a.watcher, Namespace: s.identity.namespace, Identity: replicaName(),
		Events: s.publishing.events, FleetObject: s.publishing.fleetObject, NodeLabels: s.publishing.nodeLabels,
		WarmUp: time.Duration(s.silentAfter) * s.heartbeat, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to write to Kubernetes: %w", err)
	}
	return made, nil
}

// replicaName is the pod's name with something random, so that a container that is started again is another one.
func replicaName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "offramp-aggregator"
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails; see crypto/rand
	return host + "_" + hex.EncodeToString(random[:])
}

// result tells Kubernetes how an order ended that was passed on here, where that is news.
func (a *around) result(node string, result *offrampv1.OrderResult) {
	if a.publisher != nil {
		a.publisher.Result(node, result)
	}
}

// publishes writes to Kubernetes for as long as the server runs.
func (a *around) publishes(ctx context.Context) error {
	if a.publisher == nil {
		return nil
	}
	return a.publisher.Run(ctx)
}
