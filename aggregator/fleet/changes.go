package fleet

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Changes tells what happened on a node, or on all when it names none, after a moment, newest first, at most limit of them. The nodes'
// own memories are what it goes by; those that do not reach back to the moment are named.
func (s *Store) Changes(name string, after time.Time, limit int) *offrampv1.ListChangesResponse {
	answer := &offrampv1.ListChangesResponse{}
	for _, n := range s.sorted().nodes {
		if name != "" && n.name != name {
			continue
		}
		history := n.history()
		if history.GetSince() == nil || history.GetSince().AsTime().After(after) {
			answer.Incomplete++
			answer.IncompleteSamples = sample(answer.GetIncompleteSamples(), []string{n.name})
		}
		for _, entry := range history.GetEntries() {
			if entry.GetAt().AsTime().After(after) {
				answer.Changes = append(answer.Changes, &offrampv1.Change{At: entry.GetAt(), Node: n.name, Kind: entry.GetKind(), What: entry.GetWhat()})
			}
		}
	}
	slices.SortStableFunc(answer.GetChanges(), newestFirst)
	answer.Changes = answer.GetChanges()[:min(len(answer.GetChanges()), limit)]
	return answer
}

func newestFirst(a, b *offrampv1.Change) int {
	if order := compareTimes(b.GetAt(), a.GetAt()); order != 0 {
		return order
	}
	return strings.Compare(a.GetNode(), b.GetNode())
}

func compareTimes(a, b *timestamppb.Timestamp) int { return a.AsTime().Compare(b.AsTime()) }

// history is what the node remembers; nil when it said nothing of it.
func (n *node) history() *offrampv1.HistoryFacts {
	n.mu.Lock()
	defer n.mu.Unlock()
	section := n.sections[offrampv1.SectionKind_SECTION_KIND_HISTORY]
	if section == nil {
		return nil
	}
	stable, err := facts.Decode(offrampv1.SectionKind_SECTION_KIND_HISTORY, []byte(section.value))
	if err != nil {
		return nil
	}
	return stable.GetHistory()
}

// Rejudge assesses nodes again, of which something beside their own facts changed.
func (s *Store) Rejudge(names []string) {
	for _, name := range names {
		n := s.find(name)
		if n == nil {
			continue
		}
		n.mu.Lock()
		changed := !n.seen.IsZero() && n.judge(s)
		n.mu.Unlock()
		if changed {
			s.watchers.tell(name)
		}
	}
}

// Has reports whether a node is known.
func (s *Store) Has(name string) bool { return s.find(name) != nil }
