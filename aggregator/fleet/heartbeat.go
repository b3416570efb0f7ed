package fleet

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Heartbeat notes that the node is still there. It may not come before the first report.
func (se *Session) Heartbeat(heartbeat *offrampv1.Heartbeat) error {
	for _, section := range heartbeat.GetSections() {
		if err := checkHeartbeat(section); err != nil {
			return err
		}
	}
	changed, err := se.beat(heartbeat)
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

// beat reports whether anything that people see changed.
func (se *Session) beat(heartbeat *offrampv1.Heartbeat) (bool, error) {
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
	wasSilent := n.silent(now, s.silence())
	n.seen = now
	if !n.mergeVolatile(heartbeat) {
		return wasSilent, nil
	}
	return n.judge(s) || wasSilent, nil
}

// mergeVolatile reports whether more than read times moved.
func (n *node) mergeVolatile(heartbeat *offrampv1.Heartbeat) (moved bool) {
	volatile := n.volatileByKind()
	for _, section := range heartbeat.GetSections() {
		if kind := section.GetKind(); facts.Known(kind) && n.sections[kind] != nil {
			moved = moved || !sameContent(volatile[kind], section.GetVolatile())
			volatile[kind] = section.GetVolatile()
		}
	}
	n.keepVolatile(volatile)
	return moved
}

func sameContent(a, b *offrampv1.SectionVolatile) bool {
	return proto.Equal(&offrampv1.SectionVolatile{Content: a.GetContent()}, &offrampv1.SectionVolatile{Content: b.GetContent()})
}
