package stream

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// snapshot is one scan, ready to be sent. It never changes.
type snapshot struct {
	at       time.Time
	sections []section
}

type section struct {
	kind     offrampv1.SectionKind
	digest   facts.Digest
	encoded  []byte
	volatile *offrampv1.SectionVolatile
}

// newSnapshot judges each section as an aggregator will. One that breaks a bound is sent as unreadable: the aggregator
// would end the stream for it, and the node's other sections would be lost with it.
func newSnapshot(node *offrampv1.NodeFacts, at time.Time, log *slog.Logger) *snapshot {
	taken := &snapshot{at: at}
	for _, read := range node.GetSections() {
		one := section{kind: read.GetKind(), volatile: read.GetVolatile()}
		var err error
		if one.encoded, one.digest, err = encode(read); err != nil {
			log.Error("a section cannot be reported as it was read", "section", one.kind.String(), "error", err)
			one.encoded, one.digest = unreadable(err.Error())
		}
		if err := facts.CheckVolatile(one.kind, one.volatile); err != nil {
			log.Error("what moves of a section cannot be reported", "section", one.kind.String(), "error", err)
			one.volatile = nil
		}
		taken.sections = append(taken.sections, one)
	}
	return taken
}

func encode(read *offrampv1.Section) ([]byte, facts.Digest, error) {
	if err := facts.Check(read.GetKind(), read.GetStable()); err != nil {
		return nil, facts.Digest{}, err
	}
	encoded, digest, err := facts.Encode(read.GetStable())
	if err == nil && len(encoded) > facts.MaxSectionBytes {
		err = fmt.Errorf("it takes %d bytes, at most %d can be reported", len(encoded), facts.MaxSectionBytes)
	}
	return encoded, digest, err
}

// unreadable encodes a section that only says why there is nothing in it.
func unreadable(why string) ([]byte, facts.Digest) {
	// The text is cut where it may be long; what is not UTF-8 cannot be sent at all.
	encoded, digest, err := facts.Encode(&offrampv1.SectionStable{
		State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: fmt.Sprintf("%+.500q", why),
	})
	if err != nil {
		encoded, digest, _ = facts.Encode(&offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE})
	}
	return encoded, digest
}

// board shows the latest snapshot to everybody.
type board struct {
	mu     sync.Mutex
	latest *snapshot
	newer  chan struct{}
}

func newBoard() *board { return &board{newer: make(chan struct{})} }

func (b *board) publish(taken *snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest = taken
	close(b.newer)
	b.newer = make(chan struct{})
}

// look returns the latest snapshot, nil before the first scan, and a channel that is closed when there is a newer one.
func (b *board) look() (latest *snapshot, newer <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest, b.newer
}
