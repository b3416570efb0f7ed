package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Config says what to follow.
type Config struct {
	// Client reaches the API server. Required.
	Client kubernetes.Interface
	// Namespaces in which kube-proxy's pods and configuration may be. Default kube-system and openshift-kube-proxy.
	Namespaces []string
	// PoolLabel is the node label that names a node's pool; empty tries those of the usual providers.
	PoolLabel string
	// Settle is how long to wait after a change before it is told, so that a storm is told once (default 1 s).
	Settle time.Duration
	// Log is told of kinds that cannot be read. Default slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Client == nil {
		return c, errors.New("following a cluster needs a client of its API")
	}
	if len(c.Namespaces) == 0 {
		c.Namespaces = []string{"kube-system", "openshift-kube-proxy"}
	}
	if c.Settle <= 0 {
		c.Settle = time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

// Watcher follows a cluster. Use New, then Run.
type Watcher struct {
	config Config
	feeds  []*feed
	dirty  chan struct{}

	mu    sync.Mutex
	facts *offrampv1.ClusterFacts
	told  map[chan struct{}]struct{}
}

// New makes a Watcher that does not follow yet.
func New(config Config) (*Watcher, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Watcher{config: config, dirty: make(chan struct{}, 1), told: map[chan struct{}]struct{}{}}
	w.feeds = w.allFeeds()
	return w, nil
}

// Run follows until ctx ends. It returns an error only when it could not begin.
func (w *Watcher) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for _, feed := range w.feeds {
		if err := feed.prepare(w.note); err != nil {
			return fmt.Errorf("follow %s: %w", feed.kind, err)
		}
		group.Go(func() { feed.informer.RunWithContext(ctx) })
		group.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), feed.informer.HasSynced) {
				feed.markSynced()
				w.note()
			}
		})
	}
	w.settle(ctx)
	return nil
}

// note says that something changed; it never blocks.
func (w *Watcher) note() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// settle makes the facts anew after changes, at most once per Settle.
func (w *Watcher) settle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
		}
		timer := time.NewTimer(w.config.Settle)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		w.publish(w.build())
	}
}

func (w *Watcher) publish(facts *offrampv1.ClusterFacts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts = facts
	for wake := range w.told {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Facts is the latest look at the cluster; nil before the first one. It is shared: it must not be changed.
func (w *Watcher) Facts() *offrampv1.ClusterFacts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts
}

// Unanswered are the kinds of which it is not known yet whether they can be read, sorted; none once every kind was read, or is known
// to be forbidden or not to exist.
func (w *Watcher) Unanswered() []string {
	var kinds []string
	for _, feed := range w.feeds {
		if !feed.answered() {
			kinds = append(kinds, feed.kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// NodeUID is the UID of a Node object; false for one that is not there.
func (w *Watcher) NodeUID(name string) (types.UID, bool) {
	for _, feed := range w.feeds {
		if feed.kind != kindNodes {
			continue
		}
		item, there, err := feed.informer.GetStore().GetByKey(name)
		if node, ok := item.(*corev1.Node); ok && there && err == nil {
			return node.UID, true
		}
	}
	return "", false
}

// Changes returns a channel that receives when Facts has something new, and a function that ends this.
func (w *Watcher) Changes() (changes <-chan struct{}, stop func()) {
	wake := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[wake] = struct{}{}
	return wake, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.told, wake)
	}
}
