package fleet

import (
	"maps"
	"sync"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// firsts knows, for each pool, the node that is clean for the longest time. It follows what is noted of nodes, so that an answer
// about one of them need not look at all: with a watcher on a large fleet that would be every node for every change. What it
// cannot follow is counted anew, by the next who asks.
type firsts struct {
	mu sync.Mutex
	// known is false while all nodes must be looked at again.
	known bool
	// of and nodes are the Node objects by which pools is.
	of    *offrampv1.ClusterFacts
	nodes map[string]*offrampv1.ClusterNode
	// pools is shared with those who asked: it is replaced, never changed.
	pools map[string]first
	// noted counts the notes: what was counted while one came is good for one answer alone.
	noted uint64
}

type first struct {
	node  string
	since time.Time
}

// before reports whether a is the first rather than b, which may be nobody.
func (a first) before(b first) bool {
	switch {
	case a.since.IsZero():
		return false
	case b.since.IsZero() || a.since.Before(b.since):
		return true
	}
	return a.since.Equal(b.since) && a.node < b.node
}

// note says since when a node is clean; the zero time when it is not. The caller holds the node's lock.
func (f *firsts) note(node string, since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noted++
	if !f.known {
		return
	}
	pool, now := f.nodes[node].GetPool(), first{node, since}
	switch before := f.pools[pool]; {
	case now.before(before):
		f.pools = maps.Clone(f.pools)
		f.pools[pool] = now
	case before.node == node:
		// It may be anybody now.
		f.known = false
	}
}

// get returns the first of each pool, by the Node objects of a moment. count looks at all nodes.
func (f *firsts) get(m *moment, count func(*moment) map[string]first) map[string]first {
	f.mu.Lock()
	noted := f.noted
	if f.known && f.of == m.facts {
		defer f.mu.Unlock()
		return f.pools
	}
	f.mu.Unlock()
	pools := count(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noted == noted {
		f.known, f.of, f.nodes, f.pools = true, m.facts, m.nodes, pools
	}
	return pools
}

// firstOfPools looks at all nodes.
func (s *Store) firstOfPools(m *moment) map[string]first {
	pools := map[string]first{}
	for _, n := range s.sorted().nodes {
		n.mu.Lock()
		one := first{n.name, n.cleanSince}
		n.mu.Unlock()
		if pool := m.nodes[n.name].GetPool(); one.before(pools[pool]) {
			pools[pool] = one
		}
	}
	return pools
}
