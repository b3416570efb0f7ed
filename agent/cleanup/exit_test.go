package cleanup_test

import (
	"testing"

	"offramp.dev/offramp/agent/cleanup"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func found(ids ...string) []*offrampv1.GuardFinding {
	var all []*offrampv1.GuardFinding
	for _, id := range ids {
		all = append(all, cleanup.Finding(id, "evidence"))
	}
	return all
}

func TestPlanExit(t *testing.T) {
	overridden := found("sockets-with-vip")
	overridden[0].OverriddenBecause = "known"
	some := []*offrampv1.Operation{{}}
	for _, c := range []struct {
		name string
		plan *offrampv1.Plan
		want int
	}{
		{"nothing to do", &offrampv1.Plan{}, 0},
		{"something to do", &offrampv1.Plan{Operations: some}, 3},
		{"refused", &offrampv1.Plan{Operations: some, Guards: found("mode-is-not-target")}, 2},
		{"could not tell", &offrampv1.Plan{Operations: some, Guards: found("mode-unknown", "section-unread")}, 4},
		{"both", &offrampv1.Plan{Operations: some, Guards: found("mode-unknown", "foreign-jump")}, 2},
		{"nothing in sight, not all read", &offrampv1.Plan{Guards: found("section-unread")}, 4},
		{"overridden", &offrampv1.Plan{Operations: some, Guards: overridden}, 3},
	} {
		if got := cleanup.PlanExit(c.plan); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

func TestResultExit(t *testing.T) {
	ended := func(outcomes ...offrampv1.OperationOutcome) []*offrampv1.OperationResult {
		var all []*offrampv1.OperationResult
		for _, outcome := range outcomes {
			all = append(all, &offrampv1.OperationResult{Outcome: outcome})
		}
		return all
	}
	const done, gone, remains, untried, unknown = 1, 2, 3, 4, 5
	for _, c := range []struct {
		name   string
		result *offrampv1.CleanupResult
		want   int
	}{
		{"nothing to do", &offrampv1.CleanupResult{}, 0},
		{"done", &offrampv1.CleanupResult{Operations: ended(done, gone)}, 0},
		{"refused", &offrampv1.CleanupResult{RefusedBy: found("plan-changed")}, 2},
		{"could not tell", &offrampv1.CleanupResult{RefusedBy: found("section-unread")}, 4},
		{"one remains", &offrampv1.CleanupResult{Operations: ended(done, remains)}, 3},
		{"one was not tried", &offrampv1.CleanupResult{Operations: ended(done, untried)}, 3},
		{"one is unknown", &offrampv1.CleanupResult{Operations: ended(remains, unknown), Remaining: 1}, 4},
		{"more has come", &offrampv1.CleanupResult{Operations: ended(done), Remaining: 2}, 3},
		{"failed", &offrampv1.CleanupResult{Operations: ended(done, untried), Error: "the disk is full"}, 1},
	} {
		if got := cleanup.ResultExit(c.result); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}
