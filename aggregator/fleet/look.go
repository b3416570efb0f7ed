package fleet

import (
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Look is one node as of one moment. It is good during the call that it is given to.
type Look struct {
	// Summary is never nil. It may be shared: it must not be changed.
	Summary *offrampv1.NodeSummary
	// HistoryDigest is that of what the node remembers: it is decoded by History, nil where there is none, and only worth it when the
	// digest is another one. Zero where there is none.
	HistoryDigest facts.Digest
	History       func() *offrampv1.HistoryFacts
}

// Each calls look with every node in the order of their names, also with those of which there is only an object of the API. All are
// seen as of one moment. look must not call the Store.
func (s *Store) Each(target offrampv1.Target, look func(Look)) {
	m := s.moment(target)
	for _, row := range s.rows(m) {
		look(row.look(s, m))
	}
}

func (r row) look(s *Store, m *moment) Look {
	l := Look{Summary: r.summary(s, m), History: func() *offrampv1.HistoryFacts { return nil }}
	if r.node == nil {
		return l
	}
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	if section := r.node.sections[offrampv1.SectionKind_SECTION_KIND_HISTORY]; section != nil {
		l.HistoryDigest, l.History = section.key.digest, r.node.history
	}
	return l
}
