package publish

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"offramp.dev/offramp/aggregator/fleet"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// world is an API server and a fleet, as far as publishing is about them.
type world struct {
	t       *testing.T
	client  *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	log     *log

	mu    sync.Mutex
	now   time.Time
	looks []fleet.Look
	sum   *v1.GetReadinessResponse
	facts *v1.ClusterFacts
	// asked is for which target the fleet was summed up last.
	asked v1.Target
}

// log may be written and read at the same time.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newWorld is a cluster of the nodes a and b, of which the fleet has heard.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: noon(), log: &log{}}
	w.client = fake.NewClientset(
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "offramp", Name: "offramp-aggregator"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-of-a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid-of-b"}},
	)
	w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "offramp.dev", Version: "v1alpha1", Resource: "fleets"}: "FleetList",
	})
	w.facts = &v1.ClusterFacts{
		Sources: []*v1.ClusterSource{{Kind: "nodes", State: v1.SectionState_SECTION_STATE_PRESENT}},
		Nodes:   []*v1.ClusterNode{{Name: "a"}, {Name: "b", Labels: map[string]string{"offramp.dev/phase": "done"}}},
	}
	w.looks = []fleet.Look{look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil)), look("b", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil))}
	w.sum = &v1.GetReadinessResponse{Target: nftables, Nodes: 2, Ready: 2, Verdict: v1.Verdict_VERDICT_READY}
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(by)
}

func (w *world) see(looks ...fleet.Look) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = looks
}

// Each implements Fleet.
func (w *world) Each(_ v1.Target, look func(fleet.Look)) {
	w.mu.Lock()
	looks := w.looks
	w.mu.Unlock()
	for _, l := range looks {
		look(l)
	}
}

// Readiness implements Fleet.
func (w *world) Readiness(target v1.Target, _ fleet.Filter, _ string) *v1.GetReadinessResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = target
	return w.sum
}

// Facts implements Cluster.
func (w *world) Facts() *v1.ClusterFacts { return w.facts }

// NodeUID implements Cluster.
func (w *world) NodeUID(name string) (types.UID, bool) {
	for _, node := range w.facts.GetNodes() {
		if node.GetName() == name {
			return types.UID("uid-of-" + name), true
		}
	}
	return "", false
}

func (w *world) publisher(identity string, change func(*Config)) *Publisher {
	w.t.Helper()
	config := Config{
		Client: w.client, Objects: w.objects, Fleet: w, Cluster: w, Namespace: "offramp", Identity: identity, Events: true, FleetObject: true, NodeLabels: true,
		WarmUp: 3 * time.Minute, Log: slog.New(slog.NewTextHandler(w.log, nil)), Now: w.clock,
	}
	if change != nil {
		change(&config)
	}
	p, err := New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// leading is a Publisher that holds the Lease until the test ends, without an election. Its rounds are run by the test.
func (w *world) leading(identity string, change func(*Config)) *Publisher {
	w.t.Helper()
	p := w.publisher(identity, change)
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	p.lease.lock.set(w.clock().Add(1000 * time.Hour))
	p.lease.begin(ctx)
	return p
}

// round is one round of a Publisher.
func (p *Publisher) round() { p.write(context.Background(), p.look()) }

// writes counts what was written, by verb and resource.
func (w *world) writes() map[string]int {
	count := map[string]int{}
	for _, action := range w.client.Actions() {
		if verb := action.GetVerb(); verb == "create" || verb == "patch" || verb == "update" || verb == "delete" {
			count[verb+" "+action.GetResource().Resource]++
		}
	}
	for _, action := range w.objects.Actions() {
		if verb := action.GetVerb(); verb != "get" {
			count[verb+" "+action.GetResource().Resource]++
		}
	}
	return count
}
