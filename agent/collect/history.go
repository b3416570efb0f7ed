package collect

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kindHistory    = offrampv1.SectionKind_SECTION_KIND_HISTORY
	maxModeChanges = 20
	maxEntries     = 50
	maxEntryBytes  = 200
	// noneSavedEvery is how often a stretch without a kube-proxy is written down as going on; well below maxNoneGap, so that
	// a quick restart of the agent does not break it.
	noneSavedEvery = time.Minute
)

// Memory keeps a node's history over restarts of the agent. It says in a log of its own what does not work.
type Memory interface {
	// Load returns what was kept: nothing at first, and nothing in place of what cannot be understood. Not ok means that it
	// is not in reach now: nothing may be saved over it.
	Load() (kept *Kept, ok bool)
	// Save reports whether it will be there after a power cut.
	Save(kept *Kept) bool
	// Runs lists clean-ups and restores on this node, oldest first, the newest 50.
	Runs() []*offrampv1.HistoryEntry
}

// history remembers what happens over the life of a Scanner, and longer with a Memory. Safe for use by several goroutines.
type history struct {
	memory Memory // nil: over the life of the Scanner alone

	mu sync.Mutex
	Kept
	// loaded and durable: the memory was read, and has all that is here. first: nothing was seen since it was read.
	loaded, durable, first bool
	changed                bool // since it was saved
	noneSaved              time.Time
}

func newHistory(since time.Time, memory Memory) *history {
	return &history{memory: memory, Kept: Kept{Since: since}}
}

// open recalls what the memory has, once it is in reach. It may block for as long as a disk does, and holds nothing up.
func (h *history) open(now time.Time) {
	if h == nil || h.memory == nil || h.isLoaded() {
		return
	}
	kept, ok := h.memory.Load()
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loaded = true
	if kept != nil {
		h.first = true
		h.follow(kept)
		h.notAfter(now)
	}
}

func (h *history) isLoaded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loaded
}

// glance is what a reading says that history is about. Empty is what it could not tell.
type glance struct {
	mode            offrampv1.ProxyMode
	version         string // kube-proxy's
	bootID, release string
	booted          time.Time
}

// see notes what a reading says. A moment in which something could not be told is no change: kube-proxy restarts.
func (h *history) see(what glance, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notAfter(at)
	h.seeBoot(what, at)
	h.seeVersion(what.version, at)
	h.seeMode(what.mode, at)
}

func (h *history) seeMode(mode offrampv1.ProxyMode, at time.Time) {
	if mode == modeUnsaid || mode == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		return
	}
	if h.Mode != modeUnsaid && h.Mode != mode {
		h.Changes = append(h.Changes, &offrampv1.ModeChange{At: timestamppb.New(at), From: h.Mode, To: mode})
		what := modeWord(h.Mode) + " to " + modeWord(mode)
		if h.first {
			what += ", found when the agent started"
		}
		h.enter("mode", what, at)
	}
	h.changed = h.changed || h.Mode != mode
	h.Mode, h.first = mode, false
}

func (h *history) seeVersion(version string, at time.Time) {
	if version == "" || version == h.ProxyVersion {
		return
	}
	if h.ProxyVersion != "" {
		h.enter("kube-proxy version", h.ProxyVersion+" to "+version, at)
	}
	h.ProxyVersion, h.changed = version, true
}

func (h *history) seeBoot(what glance, at time.Time) {
	if what.bootID == "" || what.bootID == h.BootID {
		return
	}
	if h.BootID != "" {
		if !what.booted.IsZero() && what.booted.Before(at) {
			at = what.booted
		}
		h.enter("boot", "kernel "+what.release, at)
	}
	h.BootID, h.changed = what.bootID, true
}

func (h *history) enter(kind, what string, at time.Time) {
	h.Entries = append(h.Entries, &offrampv1.HistoryEntry{At: timestamppb.New(at), Kind: kind, What: cut(what, maxEntryBytes)})
	h.bound()
}

// seeProxy notes whether a reading saw a kube-proxy, or could not tell, and returns since when none was seen: the zero time
// when one is. A stretch ends where nobody looked for longer than maxNoneGap, where the clock went back, and at a boot.
func (h *history) seeProxy(seen bool, bootID string, at time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	unbroken := !h.NoneSince.IsZero() && !at.Before(h.NoneSeen) && at.Sub(h.NoneSeen) <= maxNoneGap &&
		!at.Before(h.NoneSince) && (h.BootID == "" || h.BootID == bootID)
	before := h.NoneSince
	switch {
	case seen:
		h.NoneSince = time.Time{}
	case !unbroken:
		h.NoneSince = at
	}
	h.NoneSeen = at
	h.changed = h.changed || !h.NoneSince.Equal(before)
	return h.NoneSince
}

// seeExcluded notes ipvs.excludeCIDRs as last seen; nothing seen changes nothing.
func (h *history) seeExcluded(cidrs []string) {
	if h == nil || len(cidrs) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.ExcludeCIDRs, cidrs) {
		h.ExcludeCIDRs, h.changed = slices.Clone(cidrs), true
	}
}

// excluded is ipvs.excludeCIDRs as last seen, by an earlier agent if not by this one.
func (h *history) excluded() []string {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ExcludeCIDRs)
}

// save has the memory keep what is new. It may block for as long as a disk does, and holds nothing up.
func (h *history) save() {
	if h == nil || h.memory == nil {
		return
	}
	kept, needed := h.unsaved()
	if !needed {
		return
	}
	durable := h.memory.Save(kept)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durable = durable
	if durable {
		h.noneSaved = kept.NoneSeen
	} else {
		h.changed = true
	}
}

func (h *history) unsaved() (*Kept, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	goesOn := !h.NoneSince.IsZero() && (h.NoneSeen.Before(h.noneSaved) || h.NoneSeen.Sub(h.noneSaved) >= noneSavedEvery)
	if !h.loaded || h.durable && !h.changed && !goesOn {
		return nil, false
	}
	h.changed = false
	kept := h.Kept
	kept.Changes, kept.Entries = slices.Clone(h.Changes), slices.Clone(h.Entries)
	return &kept, true
}

// section reports what is remembered. A nil history is that of a one-shot reading: absent.
func (h *history) section(now time.Time) *offrampv1.Section {
	if h == nil {
		return absent(kindHistory)
	}
	var runs []*offrampv1.HistoryEntry
	if h.memory != nil {
		runs = h.memory.Runs()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := Kept{Entries: append(slices.Clone(h.Entries), runs...)}
	all.notAfter(now)
	slices.SortStableFunc(all.Entries, func(a, b *offrampv1.HistoryEntry) int { return a.GetAt().AsTime().Compare(b.GetAt().AsTime()) })
	all.bound()
	content := &offrampv1.HistoryFacts{
		Durable: h.durable, Since: timestamppb.New(h.Since), ModeChanges: slices.Clone(h.Changes), Entries: all.Entries,
	}
	if !h.NoneSince.IsZero() {
		content.NoKubeProxySince = timestamppb.New(h.NoneSince)
	}
	return read(kindHistory, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_History{History: content},
	})
}
