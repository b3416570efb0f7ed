// Package traffic counts requests and what became of them.
package traffic

import (
	"maps"
	"slices"
	"time"
)

// Report is what one target was asked and what it answered.
type Report struct {
	// Target is the label that the target was given.
	Target string `json:"target"`
	// Requests counts all requests, Failures those without an answer.
	Requests int `json:"requests"`
	Failures int `json:"failures"`
	// Reasons counts failures by a word for each: refused, reset, unreachable, timeout, closed, or an error's text.
	Reasons map[string]int `json:"reasons,omitempty"`
	// Answers counts requests by who answered.
	Answers map[string]int `json:"answers,omitempty"`
	// GapMillis is the longest time from the start of a failed request, over all failures that follow it, to the next
	// answer or the end.
	GapMillis int64 `json:"gap_ms"`
	// FailedAt is when the first failures ended, at most maxTimes of them, to be held against what was done then.
	FailedAt []time.Time `json:"failed_at,omitempty"`
	// SlowestMillis is the longest time that an answer took.
	SlowestMillis int64 `json:"slowest_ms"`
}

const maxTimes = 5

// Counter makes a Report, request by request. Its zero value is ready.
type Counter struct {
	Report Report
	broken time.Time // start of the first failure since the last answer
}

// Add counts a request that ended at the given time after having taken some. reason is why it failed, or empty.
func (c *Counter) Add(end time.Time, took time.Duration, answer, reason string) {
	r := &c.Report
	r.Requests++
	if reason != "" && c.broken.IsZero() {
		c.broken = end.Add(-took)
	}
	if !c.broken.IsZero() {
		r.GapMillis = max(r.GapMillis, end.Sub(c.broken).Milliseconds())
	}
	if reason != "" {
		r.Failures++
		r.Reasons = count(r.Reasons, reason)
		if len(r.FailedAt) < maxTimes {
			r.FailedAt = append(r.FailedAt, end)
		}
		return
	}
	c.broken = time.Time{}
	r.Answers = count(r.Answers, answer)
	r.SlowestMillis = max(r.SlowestMillis, took.Milliseconds())
}

func count(counts map[string]int, key string) map[string]int {
	if counts == nil {
		counts = map[string]int{}
	}
	counts[key]++
	return counts
}

// Failures sums the failures of several reports.
func Failures(reports []Report) int {
	sum := 0
	for _, r := range reports {
		sum += r.Failures
	}
	return sum
}

// Failed lists the targets that had a failure, sorted.
func Failed(reports []Report) []string {
	failed := map[string]bool{}
	for _, r := range reports {
		if r.Failures > 0 {
			failed[r.Target] = true
		}
	}
	return slices.Sorted(maps.Keys(failed))
}
