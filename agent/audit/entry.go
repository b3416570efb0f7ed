// Package audit keeps one line for every clean-up, restore and refusal on a node: who, what, with what leave, how it ended.
package audit

import "time"

// Entry is one line, as JSON. docs/audit.md tells people of every field; a test compares.
type Entry struct {
	// Time is when it ended, by the node's clock.
	Time time.Time `json:"time"`
	Node string    `json:"node"`
	// Method is "apply" or "restore".
	Method string `json:"method"`
	// Outcome is one of the constants below.
	Outcome string `json:"outcome"`
	// Caller is who asked: "uid=0 sudo_user=alice" on the node, the name that the aggregator gave for an order.
	Caller string `json:"caller"`
	// Order and TokenID are of an order from afar; empty for what was asked on the node.
	Order   string `json:"order,omitempty"`
	TokenID string `json:"token_id,omitempty"`
	// Target is "nftables", "iptables", "none" or "ipvs"; empty for a restore.
	Target string `json:"target,omitempty"`
	// RunningMode is the mode that ran then.
	RunningMode string `json:"running_mode,omitempty"`
	// PlanDigest is hexadecimal.
	PlanDigest string `json:"plan_digest,omitempty"`
	BackupID   string `json:"backup_id,omitempty"`
	// RefusedBy are the ids of the guards that stood in the way.
	RefusedBy []string `json:"refused_by,omitempty"`
	// Overrides are reasons by the id of the guard that was overridden.
	Overrides map[string]string `json:"overrides,omitempty"`
	// Asserted is the reason of --assert-no-kube-proxy.
	Asserted string `json:"asserted_no_kube_proxy,omitempty"`
	// Operations counts by outcome: "done", "gone", "remains", "not-tried", "unknown"; of a restore "restored", "kept",
	// "not-allowed", "failed".
	Operations map[string]int `json:"operations"`
	// Remaining is what a new plan would still do.
	Remaining uint64 `json:"remaining"`
	// BrokenProbes are connections that worked before and failed afterwards while an endpoint answered.
	BrokenProbes []string `json:"broken_probes,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// Methods.
const (
	MethodApply   = "apply"
	MethodRestore = "restore"
)

// Outcomes of an Entry.
const (
	OutcomeDone      = "done"
	OutcomeNothing   = "nothing-to-do"
	OutcomeRefused   = "refused"
	OutcomeRemaining = "remaining"
	OutcomeUnknown   = "unknown"
	OutcomeFailed    = "failed"
)

// Outcomes lists them all.
func Outcomes() []string {
	return []string{OutcomeDone, OutcomeNothing, OutcomeRefused, OutcomeRemaining, OutcomeUnknown, OutcomeFailed}
}
