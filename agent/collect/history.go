package collect

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kindHistory    = offrampv1.SectionKind_SECTION_KIND_HISTORY
	maxModeChanges = 20
)

// history remembers the running mode over the life of a Scanner. Safe for use by several goroutines.
type history struct {
	mu      sync.Mutex
	since   time.Time
	last    offrampv1.ProxyMode
	changes []*offrampv1.ModeChange
	// noneSince is when the present stretch of readings without a kube-proxy began; zero while one is seen, or the processes
	// are not in sight. noneLast is its latest reading.
	noneSince, noneLast time.Time
}

func newHistory(since time.Time) *history { return &history{since: since} }

// see notes the running mode. A moment in which it could not be told is no change: kube-proxy restarts.
func (h *history) see(mode offrampv1.ProxyMode, at time.Time) {
	switch mode {
	case offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN:
		return
	default:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED && h.last != mode {
		h.changes = append(h.changes, &offrampv1.ModeChange{At: timestamppb.New(at), From: h.last, To: mode})
		h.changes = h.changes[max(0, len(h.changes)-maxModeChanges):]
	}
	h.last = mode
}

// seeProxy notes whether a reading saw a kube-proxy, or could not tell, and returns since when none was seen: the zero time
// when one is. A stretch ends where nobody looked for longer than maxNoneGap, and where the clock went back.
func (h *history) seeProxy(seen bool, at time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	unbroken := !h.noneSince.IsZero() && !at.Before(h.noneLast) && at.Sub(h.noneLast) <= maxNoneGap
	switch {
	case seen:
		h.noneSince = time.Time{}
	case !unbroken:
		h.noneSince = at
	}
	h.noneLast = at
	return h.noneSince
}

// section reports what is remembered. A nil history is that of a one-shot reading: absent.
func (h *history) section() *offrampv1.Section {
	if h == nil {
		return absent(kindHistory)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	content := &offrampv1.HistoryFacts{Since: timestamppb.New(h.since)}
	content.ModeChanges = append(content.ModeChanges, h.changes...)
	if !h.noneSince.IsZero() {
		content.NoKubeProxySince = timestamppb.New(h.noneSince)
	}
	return read(kindHistory, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_History{History: content},
	})
}
