package publish

import (
	"slices"
	"time"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// observer finds what is new about nodes. What it sees first of a node is where it begins, never news. It is for one goroutine.
type observer struct {
	settle time.Duration
	target offrampv1.Target
	nodes  map[string]*known
	round  uint64
}

func newObserver(settle time.Duration) *observer {
	return &observer{settle: settle, nodes: map[string]*known{}}
}

// known is how a node was when it was last looked at. There is one for each node: every field counts.
type known struct {
	round uint64
	// since is when it was seen first, or when the target became another one.
	since time.Time
	// digest is that of the memory that mark, the newest entry by the node's clock, was taken from.
	digest facts.Digest
	mark   time.Time
	left   bool
	// blockers are the ids of what stands in its way.
	blockers []string
	// told counts the news since counted.
	told    int
	counted time.Time
}

// begin begins a round for a target.
func (o *observer) begin(target offrampv1.Target, now time.Time) {
	o.round++
	if o.target != target {
		o.target = target
		for _, k := range o.nodes {
			k.since = now
		}
	}
}

// end forgets the nodes that were not seen in this round.
func (o *observer) end() {
	for name, k := range o.nodes {
		if k.round != o.round {
			delete(o.nodes, name)
		}
	}
}

// look returns what is new about a node.
func (o *observer) look(l fleet.Look, now time.Time) []item {
	summary := l.Summary
	if summary.GetLastSeen() == nil {
		return nil
	}
	k := o.nodes[summary.GetNode()]
	if k == nil {
		k = &known{since: now}
		o.nodes[summary.GetNode()] = k
	}
	k.round = o.round
	news := k.remember(l, now.Add(summary.GetClockSkew().AsDuration()))
	news = append(news, k.judge(summary.GetAssessment(), now.Sub(k.since) >= o.settle, o.target)...)
	news = k.bound(news, now)
	for i := range news {
		news[i].node, news[i].seen = summary.GetNode(), now
	}
	return news
}

// remember looks at the node's own memory. now is the node's clock: a memory that has nothing yet may recall later, from its disk,
// what is older.
func (k *known) remember(l fleet.Look, now time.Time) (news []item) {
	if l.HistoryDigest == k.digest {
		return nil
	}
	history := l.History()
	if history == nil {
		return nil
	}
	first, newest := k.digest == facts.Digest{}, time.Time{}
	for _, entry := range history.GetEntries() {
		at := entry.GetAt().AsTime()
		if one, ok := fromEntry(entry); ok && !first && at.After(k.mark) {
			news = append(news, one)
		}
		newest = later(newest, at)
	}
	if newest.IsZero() {
		newest = now
	}
	k.digest, k.mark = l.HistoryDigest, newest
	return news
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// judge looks at what is concluded from what the node said. What cannot be told changes nothing.
func (k *known) judge(assessment *offrampv1.Assessment, settled bool, target offrampv1.Target) (news []item) {
	switch assessment.GetPhase() {
	case offrampv1.Phase_PHASE_UNSPECIFIED, offrampv1.Phase_PHASE_NOT_APPLICABLE, offrampv1.Phase_PHASE_SILENT:
		return nil
	default:
	}
	blockers, undecided := []string(nil), false
	for _, finding := range assessment.GetFindings() {
		undecided = undecided || finding.GetUndecided()
		if !blocks(finding) {
			continue
		}
		blockers = append(blockers, finding.GetId())
		if settled && !slices.Contains(k.blockers, finding.GetId()) {
			news = append(news, newBlocker(finding, target))
		}
	}
	if undecided {
		blockers = append(blockers, k.blockers...)
		slices.Sort(blockers)
		blockers = slices.Compact(blockers)
	}
	k.blockers = blockers
	left := readiness.AnyLeft(assessment.GetLeftovers())
	if left && !k.left && settled {
		news = append(news, leftoversFound(assessment.GetLeftovers()))
	}
	if left || !assessment.GetLeftovers().GetUndecided() {
		k.left = left
	}
	return news
}

func blocks(finding *offrampv1.Finding) bool {
	return finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER && finding.GetScope() != offrampv1.Scope_SCOPE_CLUSTER &&
		!finding.GetUndecided() && finding.GetAccepted() == nil
}

// bound keeps a node from telling more than its share: what a node says is its own word.
func (k *known) bound(news []item, now time.Time) []item {
	if now.Sub(k.counted) >= perNodeEvery {
		k.told, k.counted = 0, now
	}
	news = news[:min(len(news), perNode-k.told)]
	k.told += len(news)
	return news
}
