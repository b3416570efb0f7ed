package fleet

import (
	"errors"
	"time"

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

// Greet returns what is known of the node that says Hello. It takes nothing from the node's owner: an agent that finds out from
// the answer that it has a stream to this aggregator already goes away again. The Hello must have been judged.
func (s *Store) Greet(hello *offrampv1.Hello) []*offrampv1.SectionDigest {
	s.mu.Lock()
	n, fresh := s.meet(hello.GetNode())
	n.mu.Lock()
	s.mu.Unlock()
	known := n.known()
	n.mu.Unlock()
	if fresh {
		s.watchers.tell(n.name)
	}
	return known
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
	n, _ := s.meet(hello.GetNode())
	n.mu.Lock()
	defer n.mu.Unlock()
	replaced := n.session
	session.node, n.session, n.agentVersion = n, session, hello.GetAgentVersion()
	n.keepSkew(hello.GetNow().AsTime(), s.config.Now(), hello.GetNow() != nil)
	return n.known(), replaced
}

// meet finds a node, or makes one that has not reported. The caller holds s.mu.
func (s *Store) meet(name string) (n *node, fresh bool) {
	if n = s.nodes[name]; n != nil {
		return n, false
	}
	n = &node{name: name, since: s.config.Now()}
	s.nodes[name], s.newest = n, n.since
	s.roster = nil
	return n, true
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
