package publish

import (
	"strconv"
	"sync"
	"time"

	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The reasons of Events, as people filter by them.
const (
	reasonSwitched        = "ProxyModeSwitched"
	reasonCleaned         = "CleanupFinished"
	reasonCleanupFailed   = "CleanupFailed"
	reasonCleanupRefused  = "CleanupRefused"
	reasonRestored        = "RestoreFinished"
	reasonRestoreFailed   = "RestoreFailed"
	reasonRestoreRefused  = "RestoreRefused"
	reasonNewBlocker      = "NewBlocker"
	reasonLeftoversFound  = "LeftoversFound"
	maxNews               = 1000
	perNode, perNodeEvery = 20, time.Hour
)

// item is one thing to tell about a node.
type item struct {
	node, reason, action, note string
	warning                    bool
	// key tells it from other things of the same reason on the node. Every replica that sees the thing makes the same of it.
	key string
	// seen is when this replica saw it.
	seen time.Time
}

// fromEntry is what an entry of a node's memory is as news; not ok for what is none.
func fromEntry(entry *offrampv1.HistoryEntry) (news item, ok bool) {
	news = item{note: entry.GetWhat(), key: strconv.FormatInt(entry.GetAt().AsTime().UnixNano(), 10) + " " + entry.GetWhat()}
	ended, complete := true, entry.GetEnd() == offrampv1.RunEnd_RUN_END_COMPLETE
	if entry.GetEnd() != offrampv1.RunEnd_RUN_END_PARTIAL && !complete {
		ended = false
	}
	switch {
	case entry.GetKind() == "mode":
		news.reason, news.action, news.note = reasonSwitched, "SwitchMode", "kube-proxy's mode: "+entry.GetWhat()
	case entry.GetKind() == "clean-up" && ended:
		news.reason, news.action, news.warning = pick(complete, reasonCleaned, reasonCleanupFailed), "CleanUp", !complete
	case entry.GetKind() == "restore" && ended:
		news.reason, news.action, news.warning = pick(complete, reasonRestored, reasonRestoreFailed), "Restore", !complete
	default:
		return item{}, false
	}
	return news, true
}

func pick(first bool, one, other string) string {
	if first {
		return one
	}
	return other
}

// fromResult is what the end of an order is as news; not ok where the node's memory has it, or nothing was tried.
func fromResult(node string, result *offrampv1.OrderResult) (news item, ok bool) {
	refused := result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED
	// An error before anything was done leaves nothing in the node's memory.
	failed := result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_FAILED && result.GetCleanup() == nil && len(result.GetRestored()) == 0
	if !refused && !failed {
		return item{}, false
	}
	news = item{node: node, note: result.GetMessage(), key: result.GetId(), warning: true}
	switch result.GetKind() {
	case offrampv1.OrderKind_ORDER_KIND_APPLY:
		news.reason, news.action = pick(refused, reasonCleanupRefused, reasonCleanupFailed), "CleanUp"
	case offrampv1.OrderKind_ORDER_KIND_RESTORE:
		news.reason, news.action = pick(refused, reasonRestoreRefused, reasonRestoreFailed), "Restore"
	default:
		return item{}, false
	}
	return news, true
}

func newBlocker(finding *offrampv1.Finding, target offrampv1.Target) item {
	note := finding.GetId() + ": " + finding.GetTitle()
	for i, evidence := range finding.GetEvidence() {
		if i == 2 {
			break
		}
		note += "; " + evidence
	}
	return item{reason: reasonNewBlocker, action: "Assess", note: note, warning: true, key: finding.GetId() + " " + render.Word(target)}
}

func leftoversFound(left *offrampv1.Leftovers) item {
	return item{reason: reasonLeftoversFound, action: "Assess", note: "left of another mode: " + render.LeftoverWords(left), warning: true}
}

// queue keeps what is to be told, oldest first. What does not fit in is dropped: news is not what anybody relies on.
type queue struct {
	mu      sync.Mutex
	items   []item
	dropped int
}

func (q *queue) add(items ...item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// What was put back may have come to a full queue.
	fits := max(0, min(len(items), maxNews-len(q.items)))
	q.items = append(q.items, items[:fits]...)
	q.dropped += len(items) - fits
}

// take returns the oldest, and takes it off the queue.
func (q *queue) take() (oldest item, any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		q.items = nil
		return item{}, false
	}
	oldest, q.items = q.items[0], q.items[1:]
	return oldest, true
}

// back puts what was taken off back where it was.
func (q *queue) back(taken item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append([]item{taken}, q.items...)
}

// forget drops what was seen before a moment, and returns how many were dropped for want of room since it was last asked.
func (q *queue) forget(before time.Time) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) > 0 && q.items[0].seen.Before(before) {
		q.items = q.items[1:]
	}
	dropped, q.dropped = q.dropped, 0
	return dropped
}
