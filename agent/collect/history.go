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

// section reports what is remembered. A nil history is that of a one-shot reading: absent.
func (h *history) section() *offrampv1.Section {
	if h == nil {
		return absent(kindHistory)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	content := &offrampv1.HistoryFacts{Since: timestamppb.New(h.since)}
	content.ModeChanges = append(content.ModeChanges, h.changes...)
	return read(kindHistory, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_History{History: content},
	})
}
