package collect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// WatchConfig says how closely a node is watched.
type WatchConfig struct {
	// Full is how old a section may get before it is read in full, whatever its header says; 0 means 10 minutes.
	Full time.Duration
	// WholeIPVS is how often the whole IPVS table is looked at, where it is too big for that each time (64 KiB of text, some
	// 150 virtual servers with 5 real servers); 0 means 2 minutes. So much later, and one scan, a change of real servers
	// alone may be seen; virtual servers that come or go are seen at the next scan. While a kube-proxy says that nothing
	// was queued since, it is looked at only every Full.
	WholeIPVS time.Duration
	// Debounce is how long to wait for more after something was announced; 0 means 1 second.
	Debounce time.Duration
}

// Watcher reads a node again and again, and each time only what changed: what the kernel announced, what has another
// header than before, what could not be read, and what has not been read for long. A section that is not read again keeps
// the time when it was. Use Scanner.Watch. Safe for use by several goroutines.
type Watcher struct {
	scanner *Scanner
	config  WatchConfig
	changes chan struct{}

	// scanning is held by the one scan that may run.
	scanning sync.Mutex
	last     map[offrampv1.SectionKind]*offrampv1.Section
	readAt   map[offrampv1.SectionKind]time.Time
	headers  map[header]uint64
	wholeAt  time.Time // when the whole IPVS table was looked at
	// wholeSyncs is what kube-proxy had synced, as known then.
	wholeSyncs string

	mu        sync.Mutex
	announced map[offrampv1.SectionKind]bool
	listening bool // to what is announced of links, addresses and routes
	took      time.Duration
}

// Watch makes a Watcher. Until its Run is called nothing is announced, and it reads more each time.
func (s *Scanner) Watch(config WatchConfig) *Watcher {
	config.Full = cmp.Or(config.Full, 10*time.Minute)
	config.WholeIPVS = cmp.Or(config.WholeIPVS, 2*time.Minute)
	config.Debounce = cmp.Or(config.Debounce, time.Second)
	return &Watcher{
		scanner: s, config: config, changes: make(chan struct{}, 1),
		last: map[offrampv1.SectionKind]*offrampv1.Section{}, readAt: map[offrampv1.SectionKind]time.Time{},
		headers: map[header]uint64{}, announced: map[offrampv1.SectionKind]bool{},
	}
}

// Changes receives when a scan is worth it before its time.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// List reads a named list, as Scanner.List does.
func (w *Watcher) List(ctx context.Context, wanted *offrampv1.ListDigest) ([]string, error) {
	return w.scanner.List(ctx, wanted)
}

// Scan returns every section, as Scanner.Scan does, and reads again what changed. Sections are shared with later scans: not
// to be changed by the caller.
func (w *Watcher) Scan(ctx context.Context) *offrampv1.NodeFacts {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	started := w.scanner.config.Host.Now()
	due := w.due(ctx)
	node := w.scanner.scan(ctx, func(d duty) []*offrampv1.Section {
		if slices.ContainsFunc(d.kinds, func(kind offrampv1.SectionKind) bool { return w.isDue(kind, due, started) }) {
			return nil
		}
		return w.kept(d)
	})
	for _, section := range node.GetSections() {
		if w.last[section.GetKind()] != section {
			w.last[section.GetKind()], w.readAt[section.GetKind()] = section, started
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = w.scanner.config.Host.Now().Sub(started)
	return node
}

// due takes what was announced, and looks at the headers of the rest. That comes before anything is read: what changes
// meanwhile shows next time.
func (w *Watcher) due(ctx context.Context) map[offrampv1.SectionKind]bool {
	w.mu.Lock()
	due := w.announced
	w.announced = map[offrampv1.SectionKind]bool{}
	listening := w.listening
	w.mu.Unlock()
	if !listening {
		for _, kind := range networkKinds() {
			due[kind] = true
		}
	}
	for _, kind := range alwaysKinds() {
		due[kind] = true
	}
	for header, fingerprint := range w.scanner.readHeaders(ctx, w.wholeIsDue()) {
		if before, seen := w.headers[header]; !seen || before != fingerprint {
			w.headers[header] = fingerprint
			for _, kind := range header.kinds() {
				due[kind] = true
			}
		}
	}
	return due
}

// wholeIsDue says whether the whole IPVS table is to be looked at, and takes it that it is.
func (w *Watcher) wholeIsDue() bool {
	now, syncs := w.scanner.config.Host.Now(), syncsOf(w.last[kindKubeProxy])
	pause := w.config.WholeIPVS
	if syncs != "" && syncs == w.wholeSyncs {
		pause = max(pause, w.config.Full)
	}
	if age := now.Sub(w.wholeAt); age >= 0 && age < pause {
		return false
	}
	w.wholeAt, w.wholeSyncs = now, syncs
	return true
}

// syncsOf tells the last change that kube-proxy synced, in each family that it proxies for; empty where it does not say, or
// is behind. The time of the sync itself would not do: ipvs mode syncs twice a minute whether or not anything changed.
func syncsOf(section *offrampv1.Section) string {
	var times strings.Builder
	for _, sync := range section.GetVolatile().GetKubeProxy().GetSyncs() {
		queued := sync.GetLastQueued().AsTime()
		if sync.GetLastSync() == nil || sync.GetLastQueued() == nil || sync.GetLastSync().AsTime().Before(queued) {
			return ""
		}
		fmt.Fprintf(&times, "%v %v ", sync.GetFamily(), queued.UnixNano())
	}
	return times.String()
}

func (w *Watcher) isDue(kind offrampv1.SectionKind, due map[offrampv1.SectionKind]bool, now time.Time) bool {
	switch last := w.last[kind]; {
	case due[kind], last == nil:
		return true
	case last.GetStable().GetState() == offrampv1.SectionState_SECTION_STATE_UNREADABLE,
		last.GetStable().GetState() == offrampv1.SectionState_SECTION_STATE_INCONSISTENT:
		return true
	case last.GetStable().GetIpvs().GetAttributionError() != "":
		return true
	default:
		age := now.Sub(w.readAt[kind])
		return age < 0 || age >= w.config.Full
	}
}

func (w *Watcher) kept(d duty) []*offrampv1.Section {
	sections := make([]*offrampv1.Section, 0, len(d.kinds))
	for _, kind := range d.kinds {
		sections = append(sections, w.last[kind])
	}
	return sections
}

// alwaysKinds are read each time: their reading is as cheap as any header of theirs. The one of nf_tables asks for the
// generation first and keeps what it has.
func alwaysKinds() []offrampv1.SectionKind {
	return []offrampv1.SectionKind{kindKubeProxy, kindNFT, kindSysctls, kindHistory}
}

// networkKinds are the sections that links, addresses and routes are part of.
func networkKinds() []offrampv1.SectionKind {
	return []offrampv1.SectionKind{kindIPVS, kindIPVSLink, kindAddresses}
}

// Detail reads more about one thing, as Scanner.Detail does.
func (w *Watcher) Detail(ctx context.Context, request *offrampv1.DetailRequest, emit func([]string) error) error {
	return w.scanner.Detail(ctx, request, emit)
}
