// Package compare finds what nodes have and no Service explains: it compares the lists that nodes name by digest with the Services
// of the cluster. Lists that are equal on many nodes are fetched and compared once.
package compare

import (
	"context"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Config says what is compared with what.
type Config struct {
	// Services of the cluster as of now; ok is false while they are not known.
	Services func() (services []*offrampv1.ClusterService, ok bool)
	// Fetch brings a list from a node that reported it.
	Fetch func(ctx context.Context, node string, list *offrampv1.ListDigest) ([]string, error)
	// Has reports whether a node is still known; what is said of others is forgotten.
	Has func(node string) bool
	// Changed is called with the nodes for which a comparison came out otherwise than before.
	Changed func(nodes []string)
	// Settle is for how long an item must be unexplained to count (default 1 min): a node hears of a Service at another moment
	// than the aggregator does.
	Settle time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Comparer keeps, for each distinct list, what no Service explains.
type Comparer struct {
	config Config

	mu    sync.Mutex
	lists map[string]*comparison
	// named is which list of each kind a node named last.
	named map[nodeList]string
}

type nodeList struct {
	node string
	name offrampv1.ListName
}

// comparison is one distinct list.
type comparison struct {
	digest *offrampv1.ListDigest
	// nodes that name this list.
	nodes map[string]struct{}
	// items is the list; nil until it was fetched.
	items []string
	// since is when each item began to be unexplained; told is what counts now, nil before the first comparison.
	since map[string]time.Time
	told  []string
	done  bool
}

// New makes a Comparer that knows no list.
func New(config Config) *Comparer {
	if config.Settle <= 0 {
		config.Settle = time.Minute
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &Comparer{config: config, lists: map[string]*comparison{}, named: map[nodeList]string{}}
}

// Run compares every interval until ctx ends.
func (c *Comparer) Run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.Compare(ctx)
		}
	}
}

// Around is what is known of a node, by the lists that its facts name. It notes that the node has them: what is not compared yet is
// compared in the next round. It is quick, and may be called from anywhere.
func (c *Comparer) Around(facts *offrampv1.NodeFacts) readiness.Surroundings {
	around := readiness.Surroundings{Unexplained: map[offrampv1.ListName][]string{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, section := range facts.GetSections() {
		for _, list := range []*offrampv1.ListDigest{section.GetStable().GetIpvs().GetList(), section.GetStable().GetIpvsLink().GetList()} {
			if list.GetCount() == 0 {
				continue
			}
			if one := c.note(facts.GetNode(), list); one.done {
				around.Unexplained[list.GetName()] = one.told
			}
		}
	}
	return around
}

// note remembers that a node has a list. The caller holds mu.
func (c *Comparer) note(node string, list *offrampv1.ListDigest) *comparison {
	key := list.GetName().String() + hex.EncodeToString(list.GetDigest())
	named := nodeList{node, list.GetName()}
	if before := c.lists[c.named[named]]; before != nil && c.named[named] != key {
		delete(before.nodes, node)
	}
	c.named[named] = key
	one := c.lists[key]
	if one == nil {
		one = &comparison{digest: list, nodes: map[string]struct{}{}, since: map[string]time.Time{}}
		c.lists[key] = one
	}
	one.nodes[node] = struct{}{}
	return one
}

// Compare is one round: it fetches what is missing, compares, forgets lists that no node has any more, and tells whose answer
// changed.
func (c *Comparer) Compare(ctx context.Context) {
	services, known := c.config.Services()
	if !known {
		return
	}
	index := readiness.IndexServices(services)
	var changed []string
	for _, one := range c.pending() {
		if !c.fetch(ctx, one) {
			continue
		}
		changed = append(changed, c.compare(one, index)...)
	}
	if len(changed) > 0 {
		c.config.Changed(changed)
	}
}

// pending are the lists that some node has.
func (c *Comparer) pending() []*comparison {
	c.mu.Lock()
	defer c.mu.Unlock()
	for named, key := range c.named {
		if !c.config.Has(named.node) {
			delete(c.named, named)
			delete(c.lists[key].nodes, named.node)
		}
	}
	var all []*comparison
	for key, one := range c.lists {
		if len(one.nodes) == 0 {
			delete(c.lists, key)
			continue
		}
		all = append(all, one)
	}
	return all
}

// fetch brings the items, from any node that has them. It reports whether they are there.
func (c *Comparer) fetch(ctx context.Context, one *comparison) bool {
	c.mu.Lock()
	have := one.items != nil
	var nodes []string
	for node := range one.nodes {
		if len(nodes) < 3 {
			nodes = append(nodes, node)
		}
	}
	c.mu.Unlock()
	if have {
		return true
	}
	for _, node := range nodes {
		items, err := c.config.Fetch(ctx, node, one.digest)
		if err != nil {
			c.config.Log.Debug("a list could not be fetched for comparison", "node", node, "list", one.digest.GetName().String(), "error", err)
			continue
		}
		c.mu.Lock()
		one.items = append([]string{}, items...)
		c.mu.Unlock()
		return true
	}
	return false
}

// compare judges one list and returns its nodes when the answer is another than before.
func (c *Comparer) compare(one *comparison, index *readiness.Services) []string {
	now := c.config.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	unexplained := index.Unexplained(one.digest.GetName(), one.items)
	since := make(map[string]time.Time, len(unexplained))
	told, waits := []string{}, false
	for _, item := range unexplained {
		at, before := one.since[item]
		if !before {
			at = now
		}
		since[item] = at
		if now.Sub(at) < c.config.Settle {
			waits = true
			continue
		}
		told = append(told, item)
	}
	one.since = since
	// The first answer waits until nothing of it is in doubt.
	if !one.done && waits {
		return nil
	}
	same := one.done && slices.Equal(one.told, told)
	one.told, one.done = told, true
	if same {
		return nil
	}
	nodes := make([]string, 0, len(one.nodes))
	for node := range one.nodes {
		nodes = append(nodes, node)
	}
	return nodes
}
