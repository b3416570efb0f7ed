package traffic_test

import (
	"slices"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster/traffic"
)

// A gap lasts from the start of the first failed request to the next answer, or to the last failure.
func TestCounter(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	type request struct {
		at, took       int // ms
		answer, reason string
	}
	for _, c := range []struct {
		name                            string
		requests                        []request
		failures, gap, slowest, fromOne int
	}{
		{"nothing was asked", nil, 0, 0, 0, 0},
		{"all were answered", []request{{10, 5, "a", ""}, {20, 7, "b", ""}, {30, 2, "a", ""}}, 0, 0, 7, 2},
		{"one failed", []request{{10, 5, "a", ""}, {1020, 1000, "", "timeout"}, {1030, 5, "a", ""}}, 1, 1010, 5, 2},
		{"two gaps", []request{{100, 100, "", "refused"}, {110, 1, "a", ""}, {200, 10, "", "refused"}, {700, 10, "", "reset"}}, 3, 510, 1, 1},
		{"never answered", []request{{100, 100, "", "refused"}, {400, 100, "", "refused"}}, 2, 400, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counter traffic.Counter
			for _, r := range c.requests {
				end := start.Add(time.Duration(r.at) * time.Millisecond)
				counter.Add(end, time.Duration(r.took)*time.Millisecond, r.answer, r.reason)
			}
			got := counter.Report
			if len(got.FailedAt) != c.failures {
				t.Errorf("%d times of %d failures", len(got.FailedAt), c.failures)
			}
			if got.Requests != len(c.requests) || got.Failures != c.failures || got.GapMillis != int64(c.gap) ||
				got.SlowestMillis != int64(c.slowest) || got.Answers["a"] != c.fromOne {
				t.Errorf("report is %+v, want %d failures, gap %d, slowest %d, %d from a", got, c.failures, c.gap, c.slowest, c.fromOne)
			}
		})
	}
}

func TestCounterCountsReasons(t *testing.T) {
	var counter traffic.Counter
	for _, reason := range []string{"timeout", "", "timeout", "refused"} {
		counter.Add(time.Now(), time.Millisecond, "a", reason)
	}
	if r := counter.Report.Reasons; r["timeout"] != 2 || r["refused"] != 1 || len(r) != 2 {
		t.Errorf("reasons are %v", r)
	}
}

func TestSums(t *testing.T) {
	reports := []traffic.Report{{Target: "b", Failures: 2}, {Target: "a", Failures: 1}, {Target: "c"}, {Target: "b", Failures: 1}}
	if got := traffic.Failures(reports); got != 4 {
		t.Errorf("%d failures, want 4", got)
	}
	if got := traffic.Failed(reports); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("failed are %v, want a and b", got)
	}
}
