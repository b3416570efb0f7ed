package fleet

import (
	"fmt"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// arrival is a report that was judged and is ready to be stored.
type arrival struct {
	sections [kinds]*interned[sectionKey, string]
	volatile [kinds]*offrampv1.SectionVolatile
}

// Report stores sections that changed, all or none: the error of a bad section names it. Sections of kinds that this
// version does not know are skipped.
func (se *Session) Report(report *offrampv1.Report) error {
	arrived, err := se.store.judgeReport(report)
	if err == nil {
		err = se.take(arrived)
	}
	if err != nil {
		for _, section := range arrived.sections {
			se.store.sections.release(section)
		}
		return err
	}
	se.store.watchers.tell(se.node.name)
	return nil
}

func (s *Store) judgeReport(report *offrampv1.Report) (arrived arrival, err error) {
	for _, section := range report.GetSections() {
		kind := section.GetKind()
		if kind != offrampv1.SectionKind_SECTION_KIND_UNSPECIFIED && !facts.Known(kind) {
			continue
		}
		key := sectionKey{kind: kind, digest: facts.Sum(section.GetStable())}
		if err := s.judgeSection(key, section); err != nil {
			return arrived, err
		}
		if arrived.sections[kind] != nil {
			return arrived, fmt.Errorf("section %v comes twice in one report", kind)
		}
		arrived.sections[kind] = s.sections.acquire(key, string(section.GetStable()))
		arrived.volatile[kind] = section.GetVolatile()
	}
	return arrived, nil
}

// judgeSection decodes bytes that nobody holds yet; those that somebody holds were judged before.
func (s *Store) judgeSection(key sectionKey, section *offrampv1.SectionReport) error {
	if !s.sections.has(key) {
		if _, err := facts.Decode(key.kind, section.GetStable()); err != nil {
			return err
		}
	}
	return facts.CheckVolatile(key.kind, section.GetVolatile())
}

func (se *Session) take(arrived arrival) error {
	n := se.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session != se {
		return ErrReplaced
	}
	// From here on the sections that were there before are vouched for again, also by a report without any.
	n.seen = se.store.config.Now()
	if n.replace(se.store, arrived) || n.profile == nil {
		n.judge(se.store)
	}
	return nil
}

// replace reports whether any section arrived: a reconnect without news costs no decoding.
func (n *node) replace(s *Store, arrived arrival) (any bool) {
	volatile := n.volatileByKind()
	for kind, section := range arrived.sections {
		if section != nil {
			s.sections.release(n.sections[kind])
			n.sections[kind], volatile[kind], any = section, arrived.volatile[kind], true
		}
	}
	if any {
		n.keepVolatile(volatile)
		n.said = 0
	}
	return any
}
