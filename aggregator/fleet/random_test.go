package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// naive is the fleet as one would write it down on paper.
type naive struct {
	sets     uint64
	seen     time.Time
	heard    time.Time
	current  *Session
	sessions []*Session
}

// history does random things to a fleet and to the notes on paper.
type history struct {
	t     *testing.T
	rand  *rand.Rand
	store *Store
	clock *clock
	nodes map[string]*naive
	// watched is what a watcher that reads now and then believes.
	watcher *Watcher
	watched map[string]*v1.NodeSummary
}

func (h *history) anyNode() (string, *naive) {
	name := fmt.Sprint("n", h.rand.IntN(6))
	if h.nodes[name] == nil {
		h.nodes[name] = &naive{}
	}
	return name, h.nodes[name]
}

func (h *history) anySession() (*naive, *Session) {
	_, n := h.anyNode()
	if len(n.sessions) == 0 {
		return n, nil
	}
	return n, n.sessions[h.rand.IntN(len(n.sessions))]
}

func (h *history) step() {
	switch h.rand.IntN(8) {
	case 0:
		h.join()
	case 1, 2:
		h.report()
	case 3, 4:
		h.beat()
	case 5:
		if n, session := h.anySession(); session != nil {
			session.Leave()
			if n.current == session {
				n.current = nil
			}
		}
	case 6:
		h.clock.advance(time.Duration(h.rand.IntN(120)) * time.Second)
		if h.rand.IntN(40) == 0 {
			h.clock.advance(25 * time.Hour)
		}
		h.store.Sweep()
		h.forget()
	default:
		h.read()
	}
}

func (h *history) join() {
	name, n := h.anyNode()
	session, _, _ := join(h.store, name)
	n.current, n.sessions = session, append(n.sessions, session)
	if n.heard.IsZero() {
		n.heard = h.clock.Now()
	}
}

func (h *history) report() {
	n, session := h.anySession()
	if session == nil {
		return
	}
	count := uint64(h.rand.IntN(5))
	err := session.Report(&v1.Report{Sections: []*v1.SectionReport{setsSection(h.t, count)}})
	if (err == nil) != (n.current == session) {
		h.t.Fatalf("report of a session that owns its node (%v): %v", n.current == session, err)
	}
	if err == nil {
		n.sets, n.seen, n.heard = count, h.clock.Now(), h.clock.Now()
	}
}

func (h *history) beat() {
	n, session := h.anySession()
	if session == nil {
		return
	}
	err := session.Heartbeat(&v1.Heartbeat{})
	if fine := n.current == session && !n.seen.IsZero(); (err == nil) != fine {
		h.t.Fatalf("heartbeat, want it taken: %v, got %v", fine, err)
	}
	if err == nil {
		n.seen, n.heard = h.clock.Now(), h.clock.Now()
	}
}

// forget crosses out who is gone for more than a day.
func (h *history) forget() {
	for name, n := range h.nodes {
		if n.current == nil && h.clock.Now().Sub(n.heard) > 24*time.Hour {
			delete(h.nodes, name)
		}
	}
}

func (h *history) read() {
	for _, event := range drainWatch(h.t, h.watcher) {
		if gone := event.GetForgotten(); gone != "" {
			delete(h.watched, gone)
		} else {
			h.watched[event.GetNode().GetNode()] = event.GetNode()
		}
	}
}

// compare holds the fleet, and what the watcher believes, against the notes.
func (h *history) compare() {
	h.t.Helper()
	h.forget()
	h.store.Sweep()
	h.read()
	rows, _ := h.store.Summaries(nftables, Filter{}, "", 100)
	var silent, withSets uint64
	for _, row := range rows {
		n := h.nodes[row.GetNode()]
		if n == nil {
			h.t.Fatalf("%s is still known", row.GetNode())
		}
		isSilent := !n.seen.IsZero() && h.clock.Now().Sub(n.seen) > 3*time.Minute
		if isSilent {
			silent++
		}
		if n.sets > 0 {
			withSets++
		}
		h.compareRow(row, n, isSilent)
		h.compareRow(h.watched[row.GetNode()], n, isSilent)
	}
	answer := h.store.Readiness(nftables, Filter{}, "")
	if len(rows) != h.known() || len(h.watched) != len(rows) || answer.GetSilent() != silent || answer.GetWithLeftovers() != withSets {
		h.t.Fatalf("%d rows, %d watched, answer %v; want %d nodes, %d silent, %d with sets", len(rows), len(h.watched), answer, h.known(), silent, withSets)
	}
	if answer.GetReady()+answer.GetBlocked()+answer.GetUnknown() != answer.GetNodes() {
		h.t.Fatalf("verdicts do not add up: %v", answer)
	}
}

// known counts the nodes that ever said Hello.
func (h *history) known() (count int) {
	for _, n := range h.nodes {
		if !n.heard.IsZero() {
			count++
		}
	}
	return count
}

func (h *history) compareRow(row *v1.NodeSummary, n *naive, silent bool) {
	h.t.Helper()
	phase := row.GetAssessment().GetPhase()
	unsureNow := silent || n.seen.IsZero()
	if row.GetInventory().GetIpsets() != n.sets || row.GetConnected() != (n.current != nil) ||
		(phase == v1.Phase_PHASE_SILENT) != silent || (row.GetAssessment().GetReady() == unsure) != unsureNow {
		h.t.Fatalf("row %v, want %d sets, connected %v, silent %v", row, n.sets, n.current != nil, silent)
	}
}

// Whatever happens in whatever order, the fleet says what paper and pencil say.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(60) {
		s, c := newStore(t)
		h := &history{
			t: t, rand: rand.New(rand.NewPCG(seed, 1)), store: s, clock: c, nodes: map[string]*naive{},
			watcher: s.Watch(nftables), watched: map[string]*v1.NodeSummary{},
		}
		for range 300 {
			h.step()
			if h.rand.IntN(10) == 0 {
				h.compare()
			}
		}
		h.end()
	}
}

// end lets everybody leave for ever: nothing may be kept.
func (h *history) end() {
	h.t.Helper()
	for _, n := range h.nodes {
		for _, session := range n.sessions {
			session.Leave()
		}
	}
	h.clock.advance(48 * time.Hour)
	h.store.Sweep()
	sizes := []int{h.store.sections.size(), h.store.assessments.size(), h.store.profiles.size(), len(h.store.nodes)}
	if !slices.Equal(sizes, []int{0, 0, 0, 0}) {
		h.t.Fatalf("kept of nobody: %v", sizes)
	}
	h.watcher.Close()
}
