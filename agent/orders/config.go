package orders

import (
	"context"
	"log/slog"
	"time"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Policy is what an agent lets itself be told from afar.
type Policy string

// Policies. An unknown one is Never.
const (
	// Never refuses every order.
	Never Policy = "never"
	// Plan lets aggregators ask for plans alone, which change nothing.
	Plan Policy = "plan"
	// Apply also lets them have plans applied and clean-ups undone.
	Apply Policy = "apply"
)

// Progress is told how far an order has come. It does not block.
type Progress func(step string, done, total uint64)

// Work does one order, as far as the node's guards allow, and says how it ended. It returns soon after ctx ends. The fields
// that name the order need not be set.
type Work func(ctx context.Context, order *offrampv1.Order, progress Progress) *offrampv1.OrderResult

// Config says what a Book obeys and with what.
type Config struct {
	// Node is the Kubernetes name of this node.
	Node   string
	Policy Policy
	// StateDir is where orders and results are kept, in a folder "orders" that is made when it is first needed. Empty: they are
	// kept in memory, and whatever would change the node is refused.
	StateDir string
	// Storage says why StateDir does not keep what is written there; nil when it does. Nil: it is trusted.
	Storage func(dir string) error
	// Work does what is obeyed. Required but for Never.
	Work Work
	// Interrupted tells what became of the clean-up or restore of an order that was interrupted: a sentence, and the
	// outcomes as far as they are known, nil where nothing is. May be nil.
	Interrupted func(id string) (string, *offrampv1.CleanupResult)
	// Record, where it is not nil, is told of every decision and end, for the audit log. Of orders that are not recorded, since
	// they are malformed or too many, only the log is told: whoever sends them must not be able to fill the audit log.
	Record func(Entry)
	// Now is the node's clock (default time.Now). No deadline is judged by it.
	Now func() time.Time
	// Log is required.
	Log *slog.Logger

	limits limits
}

// Entry is one line of the audit: a decision on an order, or its end.
type Entry struct {
	Order *offrampv1.Order
	// Event is "accepted", "refused" or "ended".
	Event string
	// Outcome is set for refused and ended ones.
	Outcome offrampv1.OrderOutcome
	// Why is for people: why it was refused, or how it ended.
	Why string
	// Took is how long it was worked on.
	Took time.Duration
}

// limits are the bounds that only tests change.
type limits struct {
	// records and bytes bound what is remembered, age for how long.
	records int
	bytes   int64
	age     time.Duration
	// settled is the age from which on an order that may have changed the node may be forgotten to make room: far above the
	// longest time in which it could still be sent again in good faith.
	settled time.Duration
}

const (
	// maxInbox is how many messages of all streams may wait.
	maxInbox = 64
	// maxQueue is how many answers that are recorded nowhere may wait on one stream.
	maxQueue = 64
)

func defaultLimits() limits {
	return limits{records: 256, bytes: 64 << 20, age: 7 * 24 * time.Hour, settled: 2 * orderform.MaxAllowed}
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Record == nil {
		c.Record = func(Entry) {}
	}
	if c.limits == (limits{}) {
		c.limits = defaultLimits()
	}
	return c
}
