package fleet

import (
	"time"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Figures are counts of the fleet that no answer to people has.
type Figures struct {
	// Connected is how many nodes have a stream to this aggregator now.
	Connected uint64
	// Modes counts the nodes that reported and are not silent by the mode that kube-proxy runs in.
	Modes map[offrampv1.ProxyMode]uint64
	// Stuck is how many of those have a kube-proxy with changes to write that has finished no sync for StuckAfter.
	Stuck uint64
}

// StuckAfter is for how long a kube-proxy must have been seen with the same changes to write and without a sync to be stuck. A
// sync of 10,000 Services takes seconds to a minute.
const StuckAfter = 10 * time.Minute

// Figures counts the fleet as of now.
func (s *Store) Figures() Figures {
	m := s.moment(offrampv1.Target_TARGET_NFTABLES)
	figures := Figures{Modes: map[offrampv1.ProxyMode]uint64{}}
	for _, row := range s.rows(m) {
		if row.node != nil {
			row.figure(s, m, &figures)
		}
	}
	return figures
}

// figure adds one node.
func (r row) figure(s *Store, m *moment, figures *Figures) {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session != nil {
		figures.Connected++
	}
	if n.seen.IsZero() || n.silent(m.now, s.Silence()) || notApplicable(r.object) {
		return
	}
	figures.Modes[n.assessment(s, m.target).GetRunningMode()]++
	if n.behind.stuck(m.now) {
		figures.Stuck++
	}
}

// behind is how long a kube-proxy has been seen with changes to write and without a sync.
type behind struct {
	// since is when that was seen first, by the aggregator's clock; zero while all is written or nobody can tell.
	since time.Time
	// synced is the last sync of what was behind then, in nanoseconds since 1970; that of no time for none.
	synced int64
}

// note looks at what a node said last: that it is behind is judged by queued against synced, never by the age of a sync, and a
// sync in between starts the wait anew, for a busy kube-proxy is behind at almost any moment.
func (b *behind) note(now time.Time, decoded *offrampv1.NodeFacts) {
	synced, is := readiness.Behind(decoded)
	switch {
	case !is:
		*b = behind{}
	case b.since.IsZero() || b.synced != synced.UnixNano():
		*b = behind{since: now, synced: synced.UnixNano()}
	}
}

func (b *behind) stuck(now time.Time) bool {
	return !b.since.IsZero() && now.Sub(b.since) >= StuckAfter
}
