package fleet

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Link is the way back to a connected agent.
type Link interface {
	// Close ends the stream; cause says why, for the agent and the log. It does not block.
	Close(cause error)
}

// ErrReplaced ends a stream whose node said Hello again elsewhere.
var ErrReplaced = errors.New("this node opened a newer stream")

// ErrOutOfOrder is a message that may not come now.
var ErrOutOfOrder = errors.New("out of order")

// Session is one stream of one node. It owns the node until the node says Hello again; from then on nothing that it says
// counts.
type Session struct {
	store *Store
	node  *node
	link  Link
}

// Join makes the sender of a Hello the owner of its node and closes the link of the owner before. It returns what is known
// of the node. The Hello must have been judged.
func (s *Store) Join(hello *offrampv1.Hello, link Link) (*Session, []*offrampv1.SectionDigest) {
	session := &Session{store: s, link: link}
	known, replaced := s.join(hello, session)
	if replaced != nil {
		replaced.link.Close(ErrReplaced)
	}
	s.watchers.tell(session.node.name)
	return session, known
}

func (s *Store) join(hello *offrampv1.Hello, session *Session) ([]*offrampv1.SectionDigest, *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[hello.GetNode()]
	if n == nil {
		n = &node{name: hello.GetNode(), since: s.config.Now()}
		s.nodes[n.name] = n
		s.sorted = nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	replaced := n.session
	session.node, n.session, n.agentVersion = n, session, hello.GetAgentVersion()
	n.keepSkew(hello.GetNow().AsTime(), s.config.Now(), hello.GetNow() != nil)
	return n.known(), replaced
}

func (n *node) known() []*offrampv1.SectionDigest {
	var known []*offrampv1.SectionDigest
	for kind, section := range n.sections {
		if section != nil {
			digest := section.key.digest
			known = append(known, &offrampv1.SectionDigest{Kind: offrampv1.SectionKind(kind), Digest: digest[:]})
		}
	}
	return known
}

func (n *node) keepSkew(theirs, ours time.Time, said bool) {
	if said {
		n.skew = theirs.Sub(ours)
	}
}

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
	}
	return any
}

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

// Leave gives up the node, if the session still owns it. What the node said stays.
func (se *Session) Leave() {
	se.node.mu.Lock()
	owned := se.node.session == se
	if owned {
		se.node.session = nil
	}
	se.node.mu.Unlock()
	if owned {
		se.store.watchers.tell(se.node.name)
	}
}
