package collect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	ipvsMode     = offrampv1.ProxyMode_PROXY_MODE_IPVS
	nftablesMode = offrampv1.ProxyMode_PROXY_MODE_NFTABLES
)

// shelf is a Memory in memory.
type shelf struct {
	kept              *Kept
	outOfReach, full  bool
	saves             int
	runs              []*offrampv1.HistoryEntry
	blocked, released chan struct{}
}

func (s *shelf) Load() (*Kept, bool) {
	if s.outOfReach || s.kept == nil {
		return nil, !s.outOfReach
	}
	kept := *s.kept
	kept.Changes, kept.Entries = slices.Clone(kept.Changes), slices.Clone(kept.Entries)
	return &kept, true
}

func (s *shelf) Save(kept *Kept) bool {
	if s.blocked != nil {
		close(s.blocked)
		<-s.released
	}
	if s.full {
		return false
	}
	s.saves++
	s.kept = kept
	return true
}

func (s *shelf) Runs() []*offrampv1.HistoryEntry { return s.runs }

// reading has a history see something, as a scan does, and returns what it says.
func reading(t *testing.T, h *history, what glance, at time.Time) *offrampv1.HistoryFacts {
	t.Helper()
	h.open(at)
	h.see(what, at)
	h.save()
	return h.section(at).GetStable().GetHistory()
}

func minute(n int) time.Time { return aMoment().Add(time.Duration(n) * time.Minute) }

func lines(facts *offrampv1.HistoryFacts) []string {
	var all []string
	for _, entry := range facts.GetEntries() {
		all = append(all, fmt.Sprint(entry.GetAt().AsTime().Format("15:04"), " ", entry.GetKind(), ": ", entry.GetWhat()))
	}
	return all
}

func wantLines(t *testing.T, facts *offrampv1.HistoryFacts, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(facts)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestHistoryOverARestart(t *testing.T) {
	memory := &shelf{}
	before := glance{mode: ipvsMode, version: "v1.36.3", bootID: "a", release: "6.1"}
	if got := reading(t, newHistory(minute(0), memory), before, minute(1)); !got.GetDurable() || len(got.GetEntries()) != 0 {
		t.Fatalf("a first reading: %v", got)
	}
	// The node was rebooted at 17:10, kube-proxy came back another one, and the agent looks again at 17:20.
	after := glance{mode: nftablesMode, version: "v1.37.2", bootID: "b", release: "6.12", booted: minute(10)}
	h := newHistory(minute(20), memory)
	got := reading(t, h, after, minute(20))
	wantLines(t, got, "17:10 boot: kernel 6.12", "17:20 kube-proxy version: v1.36.3 to v1.37.2",
		"17:20 mode: ipvs to nftables, found when the agent started")
	if !got.GetSince().AsTime().Equal(minute(0)) || len(got.GetModeChanges()) != 1 || !got.GetDurable() {
		t.Errorf("since, changes or durable: %v", got)
	}
	got = reading(t, h, glance{mode: ipvsMode}, minute(30))
	if text := lines(got)[3]; text != "17:30 mode: nftables to ipvs" {
		t.Errorf("a change that was seen: %s", text)
	}
}

// Nothing is written for a reading without news.
func TestHistoryIsSavedWhenSomethingChanged(t *testing.T) {
	memory := &shelf{}
	h := newHistory(minute(0), memory)
	for i := range 20 {
		reading(t, h, glance{mode: ipvsMode, bootID: "a"}, minute(i))
	}
	if memory.saves != 1 {
		t.Errorf("%d saves for nothing new", memory.saves)
	}
}

func TestHistoryWhileTheMemoryIsOutOfReach(t *testing.T) {
	memory := &shelf{kept: &Kept{Since: minute(-60), Mode: ipvsMode}, outOfReach: true}
	h := newHistory(minute(0), memory)
	got := reading(t, h, glance{mode: nftablesMode}, minute(1))
	if got.GetDurable() || memory.saves != 0 || !got.GetSince().AsTime().Equal(minute(0)) {
		t.Errorf("out of reach: %v, %d saves", got, memory.saves)
	}
	memory.outOfReach = false
	got = reading(t, h, glance{mode: nftablesMode}, minute(2))
	wantLines(t, got, "17:02 mode: ipvs to nftables, found when the agent started")
	if !got.GetDurable() || !got.GetSince().AsTime().Equal(minute(-60)) {
		t.Errorf("in reach again: %v", got)
	}
}

func TestHistoryOnAFullDisk(t *testing.T) {
	memory := &shelf{full: true}
	h := newHistory(minute(0), memory)
	reading(t, h, glance{mode: ipvsMode}, minute(1))
	got := reading(t, h, glance{mode: nftablesMode}, minute(2))
	wantLines(t, got, "17:02 mode: ipvs to nftables")
	if got.GetDurable() {
		t.Error("durable on a full disk")
	}
	memory.full = false
	if got = reading(t, h, glance{mode: nftablesMode}, minute(3)); !got.GetDurable() || len(memory.kept.Entries) != 1 {
		t.Errorf("with room again: durable %v, kept %v", got.GetDurable(), memory.kept.Entries)
	}
}

func TestHistoryWhoseClockGoesBack(t *testing.T) {
	memory := &shelf{}
	h := newHistory(minute(100), memory)
	reading(t, h, glance{mode: ipvsMode}, minute(101))
	reading(t, h, glance{mode: nftablesMode}, minute(102))
	got := reading(t, newHistory(minute(5), memory), glance{mode: ipvsMode}, minute(5))
	wantLines(t, got, "17:05 mode: ipvs to nftables", "17:05 mode: nftables to ipvs, found when the agent started")
	if !got.GetSince().AsTime().Equal(minute(5)) || !got.GetModeChanges()[0].GetAt().AsTime().Equal(minute(5)) {
		t.Errorf("something is in the future: %v", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	memory := &shelf{}
	h := newHistory(minute(0), memory)
	for i := range 120 {
		reading(t, h, glance{mode: []offrampv1.ProxyMode{ipvsMode, nftablesMode}[i%2], version: strings.Repeat("v", i%3*400)}, minute(i))
	}
	got := h.section(minute(200)).GetStable().GetHistory()
	if len(got.GetEntries()) != 50 || len(got.GetModeChanges()) != 20 || len(memory.kept.Entries) != 50 || len(memory.kept.Changes) != 20 {
		t.Errorf("%d entries, %d changes, kept %d and %d", len(got.GetEntries()), len(got.GetModeChanges()), len(memory.kept.Entries), len(memory.kept.Changes))
	}
	for _, entry := range got.GetEntries() {
		if len(entry.GetWhat()) > 200 {
			t.Errorf("an entry of %d bytes", len(entry.GetWhat()))
		}
	}
}

func TestHistoryTellsOfCleanUps(t *testing.T) {
	memory := &shelf{runs: []*offrampv1.HistoryEntry{{At: timestamppb.New(minute(2)), Kind: "clean-up", What: "3 operations done, 0 remain"}}}
	h := newHistory(minute(0), memory)
	reading(t, h, glance{mode: ipvsMode}, minute(1))
	wantLines(t, reading(t, h, glance{mode: nftablesMode}, minute(3)), "17:02 clean-up: 3 operations done, 0 remain", "17:03 mode: ipvs to nftables")
	if len(memory.kept.Entries) != 1 {
		t.Errorf("what the journal has is kept twice: %v", memory.kept.Entries)
	}
}

// No kube-proxy for ten minutes must not be believed over a time in which nobody looked.
func TestNoKubeProxyOverARestart(t *testing.T) {
	for name, tt := range map[string]struct {
		restart time.Time
		boot    string
		want    time.Time
	}{
		"soon":            {minute(10), "a", minute(0)},
		"late":            {minute(14), "a", minute(14)},
		"clock backwards": {minute(-5), "a", minute(-5)},
		"another boot":    {minute(10), "b", minute(10)},
		"no boot id":      {minute(10), "", minute(10)},
	} {
		t.Run(name, func(t *testing.T) {
			memory := &shelf{}
			h := newHistory(minute(0), memory)
			for i := range 10 {
				h.open(minute(i))
				h.seeProxy(false, "a", minute(i))
				reading(t, h, glance{bootID: "a"}, minute(i))
			}
			h = newHistory(tt.restart, memory)
			h.open(tt.restart)
			if got := h.seeProxy(false, tt.boot, tt.restart); !got.Equal(tt.want) {
				t.Errorf("none since %v, want %v", got, tt.want)
			}
		})
	}
}

// A disk that hangs must not keep kube-proxy from being read.
func TestHistoryDoesNotWaitForTheDisk(t *testing.T) {
	memory := &shelf{blocked: make(chan struct{}), released: make(chan struct{})}
	h := newHistory(minute(0), memory)
	h.open(minute(0))
	h.see(glance{mode: ipvsMode}, minute(0))
	ended := make(chan struct{})
	go func() { h.save(); close(ended) }()
	<-memory.blocked
	h.seeProxy(true, "a", minute(1))
	h.see(glance{mode: nftablesMode}, minute(1))
	close(memory.released)
	<-ended
	if memory.blocked = nil; !h.changed || memory.kept.Mode != ipvsMode {
		t.Errorf("what was seen meanwhile: changed %v, kept %v", h.changed, memory.kept.Mode)
	}
}
