package fleet

import (
	"errors"
	"fmt"
	"hash/maphash"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Heartbeat notes that the node is still there. It may not come before the first report.
func (se *Session) Heartbeat(heartbeat *offrampv1.Heartbeat) error {
	sum := se.store.contentSum(heartbeat)
	check := checkHeartbeat
	if se.node.saidLast(sum) {
		check = checkTimes
	}
	for _, section := range heartbeat.GetSections() {
		if err := check(section); err != nil {
			return err
		}
	}
	changed, err := se.beat(heartbeat, sum)
	if err == nil && changed {
		se.store.watchers.tell(se.node.name)
	}
	return err
}

func checkHeartbeat(section *offrampv1.SectionHeartbeat) error {
	kind := section.GetKind()
	if kind == offrampv1.SectionKind_SECTION_KIND_UNSPECIFIED {
		return errors.New("a section of a heartbeat has no kind")
	}
	if !facts.Known(kind) {
		return nil
	}
	return facts.CheckVolatile(kind, section.GetVolatile())
}

// checkTimes is checkHeartbeat for what has been checked but for the times of reading.
func checkTimes(section *offrampv1.SectionHeartbeat) error {
	times := &offrampv1.SectionVolatile{ReadAt: section.GetVolatile().GetReadAt(), ReadTook: section.GetVolatile().GetReadTook()}
	return facts.CheckVolatile(section.GetKind(), times)
}

// contentSum is that of what a heartbeat says, but for when and how it was read. Most heartbeats say what the one before said: to see
// that by a sum costs a third of decoding and comparing what is stored. Zero is none.
func (s *Store) contentSum(heartbeat *offrampv1.Heartbeat) uint64 {
	var sum maphash.Hash
	sum.SetSeed(s.seed)
	var room [512]byte
	for _, section := range heartbeat.GetSections() {
		content := &offrampv1.SectionHeartbeat{Kind: section.GetKind()}
		if said := section.GetVolatile().GetContent(); said != nil {
			content.Volatile = &offrampv1.SectionVolatile{Content: said}
		}
		encoded, err := proto.MarshalOptions{}.MarshalAppend(room[:0], content)
		if err != nil {
			return 0
		}
		maphash.WriteComparable(&sum, len(encoded))
		_, _ = sum.Write(encoded)
	}
	return sum.Sum64()
}

// saidLast reports whether the last heartbeat said the same about everything, and nothing was reported since.
func (n *node) saidLast(sum uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return sum != 0 && n.said == sum
}

// beat reports whether anything that people see changed.
func (se *Session) beat(heartbeat *offrampv1.Heartbeat, sum uint64) (bool, error) {
	n, s := se.node, se.store
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.session != se:
		return false, ErrReplaced
	case n.seen.IsZero():
		return false, fmt.Errorf("%w: a heartbeat before the first report", ErrOutOfOrder)
	}
	now := s.config.Now()
	n.keepSkew(heartbeat.GetNow().AsTime(), now, heartbeat.GetNow() != nil)
	wasSilent := n.silent(now, s.Silence())
	n.seen = now
	if sum != 0 && n.said == sum {
		n.storeVolatile(&offrampv1.Heartbeat{Sections: heartbeat.GetSections()})
		return wasSilent, nil
	}
	if !n.mergeVolatile(heartbeat, sum) {
		return wasSilent, nil
	}
	return n.judge(s) || wasSilent, nil
}

// mergeVolatile reports whether more than read times moved.
func (n *node) mergeVolatile(heartbeat *offrampv1.Heartbeat, sum uint64) (moved bool) {
	volatile, taken := n.volatileByKind(), 0
	for _, section := range heartbeat.GetSections() {
		if kind := section.GetKind(); facts.Known(kind) && n.sections[kind] != nil {
			moved = moved || !sameContent(volatile[kind], section.GetVolatile())
			volatile[kind] = section.GetVolatile()
			taken++
		}
	}
	n.keepVolatile(volatile)
	n.said = 0
	if taken == len(heartbeat.GetSections()) && taken == count(volatile) {
		// Whatever says the same may take the place of everything that is stored.
		n.said = sum
	}
	return moved
}

func count(volatile [kinds]*offrampv1.SectionVolatile) (some int) {
	for _, one := range volatile {
		if one != nil {
			some++
		}
	}
	return some
}

func sameContent(a, b *offrampv1.SectionVolatile) bool {
	return proto.Equal(&offrampv1.SectionVolatile{Content: a.GetContent()}, &offrampv1.SectionVolatile{Content: b.GetContent()})
}
