package orders

import (
	"cmp"
	"slices"
	"time"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// record is what is remembered of one order. It belongs to the goroutine of Book.Run.
type record struct {
	// order is nil where the record on the disk is damaged.
	order *offrampv1.Order
	id    string
	taken time.Time
	// begun says that work on it may have begun.
	begun bool
	// answered says that there is a result; load reads it, size is its size in bytes.
	answered bool
	load     func() ([]byte, error)
	size     int64
	// acknowledged says that an aggregator holds the result.
	acknowledged bool
	// progress is the latest, for whoever asks again.
	progress *offrampv1.OrderProgress
	// askers are the streams that the order came on.
	askers []*Feed
}

// unsettled reports whether the order must not be forgotten: it is at work, or it may have changed the node and could still be
// sent again in good faith.
func (r *record) unsettled(now time.Time, settled time.Duration) bool {
	if !r.answered {
		return true
	}
	age := now.Sub(r.taken)
	return r.begun && (r.order == nil || orderform.Changes(r.order)) && age < settled && age > -settled
}

// prune returns the records to forget: old ones, then as many as there are too many. What an aggregator holds goes before
// what none does, and the oldest first.
func prune(records map[string]*record, now time.Time, limits limits, room int) []*record {
	var candidates, gone []*record
	count, bytes := len(records)+room, int64(0)
	for _, r := range records {
		bytes += r.size
		if !r.unsettled(now, limits.settled) {
			candidates = append(candidates, r)
		}
	}
	slices.SortFunc(candidates, func(a, b *record) int {
		return cmp.Or(compare(b.acknowledged, a.acknowledged), a.taken.Compare(b.taken), cmp.Compare(a.id, b.id))
	})
	for _, r := range candidates {
		if now.Sub(r.taken) <= limits.age && count <= limits.records && bytes <= limits.bytes {
			continue
		}
		gone = append(gone, r)
		count, bytes = count-1, bytes-r.size
	}
	return gone
}

// compare sorts false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
