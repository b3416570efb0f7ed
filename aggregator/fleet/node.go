package fleet

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// kinds and targets size the arrays that are indexed by SectionKind and Target.
const (
	kinds   = offrampv1.SectionKind_SECTION_KIND_HOST + 1
	targets = offrampv1.Target_TARGET_IPVS + 1
)

// sectionKey names section bytes. Equal bytes mean different things in different kinds, so the kind belongs to the key.
type sectionKey struct {
	kind   offrampv1.SectionKind
	digest facts.Digest
}

// node is what one node last said. There is one per node and 100,000 nodes: every field counts.
type node struct {
	name string

	mu           sync.Mutex
	agentVersion string
	// session owns the node; nil when no stream is open.
	session *Session
	// seen is when a report or a heartbeat last vouched for the sections; zero before the first report.
	seen time.Time
	// since is when the node was first heard of, for forgetting those that never report.
	since time.Time
	skew  time.Duration
	// cleanSince is since when the node is switched and clean, by the aggregator's clock; zero when it is not, or nobody can tell.
	cleanSince time.Time
	// connections are those through the node's virtual servers.
	connections uint64
	behind      behind
	// silenceTold is true when watchers know that the node is silent.
	silenceTold bool

	sections [kinds]*interned[sectionKey, string]
	// volatile is an encoded Heartbeat: as messages these parts would take ten times the space.
	volatile []byte
	// said is the sum of what the last heartbeat said, when that is about all of volatile; 0 otherwise.
	said    uint64
	judged  [targets]*interned[facts.Digest, *offrampv1.Assessment]
	profile *interned[profile, struct{}]
}

// silent reports whether a node that has reported was not heard of for too long. The caller holds n.mu.
func (n *node) silent(now time.Time, silence time.Duration) bool {
	return !n.seen.IsZero() && now.Sub(n.seen) > silence
}

func (n *node) sweep(now time.Time, silence, forgetAfter time.Duration) (silentNow, forget bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	silent := n.silent(now, silence)
	silentNow = silent && !n.silenceTold
	n.silenceTold = silent
	return silentNow, n.forgettable(now, forgetAfter)
}

func (n *node) forgettable(now time.Time, after time.Duration) bool {
	heard := n.seen
	if heard.IsZero() {
		heard = n.since
	}
	return n.session == nil && now.Sub(heard) > after
}

// drop gives up everything the node holds when it is still to be forgotten.
func (n *node) drop(s *Store, now time.Time, after time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.forgettable(now, after) {
		return false
	}
	for _, section := range n.sections {
		s.sections.release(section)
	}
	for _, judged := range n.judged {
		s.assessments.release(judged)
	}
	s.profiles.release(n.profile)
	n.cleanSince = time.Time{}
	s.firsts.note(n.name, n.cleanSince)
	return true
}

// facts decodes everything. It cannot fail but for a broken program: the bytes were judged when they came. The caller
// holds n.mu.
func (n *node) facts() *offrampv1.NodeFacts {
	decoded := &offrampv1.NodeFacts{Node: n.name, AgentVersion: n.agentVersion}
	volatile := n.volatileByKind()
	for kind, section := range n.sections {
		if section == nil {
			continue
		}
		kind := offrampv1.SectionKind(kind)
		stable, err := facts.Decode(kind, []byte(section.value))
		if err != nil {
			stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: err.Error()}
		}
		decoded.Sections = append(decoded.Sections, &offrampv1.Section{Kind: kind, Stable: stable, Volatile: volatile[kind]})
	}
	return decoded
}

func (n *node) volatileByKind() (byKind [kinds]*offrampv1.SectionVolatile) {
	stored := &offrampv1.Heartbeat{}
	if err := proto.Unmarshal(n.volatile, stored); err != nil {
		return byKind
	}
	for _, section := range stored.GetSections() {
		byKind[section.GetKind()] = section.GetVolatile()
	}
	return byKind
}

// keepVolatile stores the parts by kind, those without one left out.
func (n *node) keepVolatile(byKind [kinds]*offrampv1.SectionVolatile) {
	stored := &offrampv1.Heartbeat{}
	for kind, volatile := range byKind {
		if volatile != nil {
			stored.Sections = append(stored.Sections, &offrampv1.SectionHeartbeat{Kind: offrampv1.SectionKind(kind), Volatile: volatile})
		}
	}
	n.storeVolatile(stored)
}

func (n *node) storeVolatile(stored *offrampv1.Heartbeat) {
	// Marshalling fails on strings that are not UTF-8 alone; these messages have none.
	encoded, err := proto.Marshal(stored)
	if err == nil {
		n.volatile = encoded
	}
}
