// Package benchtarget holds what benchmarks measure against what is promised of the programs: a line for each promise, and a
// benchmark that fails where one is missed, after everything else was measured.
package benchtarget

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// AtMost prints a line "TARGET benchmark: what: got, at most most: verdict", and fails the benchmark where got is more. The
// unit stands in what. note is appended to the line; it may be empty.
func AtMost(b *testing.B, what string, got, most float64, note string) {
	b.Helper()
	verdict := "reached"
	if got > most {
		verdict = "MISSED"
	}
	line := fmt.Sprintf("%s: %s: %.3g, at most %.3g: %s", b.Name(), what, got, most, verdict)
	if note != "" {
		line += " (" + note + ")"
	}
	// On a line of its own: the benchmark's name may be waiting for its result.
	_, _ = fmt.Fprintf(os.Stdout, "\nTARGET %s\n", line)
	if got > most {
		b.Errorf("a target is missed: %s", line)
	}
}

// minRounds is how often each side of a comparison is measured at least.
const minRounds = 7

// Turns runs each of some things in turns, for as long as the benchmark lasts and at least seven times, and returns the
// median of the processor time that each used, user and system. A busy machine slows all of them alike, and its worst
// moments do not count. who is unix.RUSAGE_SELF for what the process does itself, unix.RUSAGE_CHILDREN for programs that it
// runs and waits for.
func Turns(b *testing.B, turns ...Turn) []time.Duration {
	b.Helper()
	used := make([][]time.Duration, len(turns))
	round := func() {
		for i, turn := range turns {
			before := ProcessorTime(b, turn.Who)
			turn.Do()
			used[i] = append(used[i], ProcessorTime(b, turn.Who)-before)
		}
	}
	round() // makes buffers, and reads what is read once
	clear(used)
	rounds := 0
	for b.Loop() {
		round()
		rounds++
	}
	for ; rounds < minRounds; rounds++ {
		round()
	}
	medians := make([]time.Duration, 0, len(turns))
	for _, times := range used {
		slices.Sort(times)
		medians = append(medians, times[len(times)/2])
	}
	return medians
}

// Turn is one thing that is measured.
type Turn struct {
	// Who is unix.RUSAGE_SELF or unix.RUSAGE_CHILDREN.
	Who int
	Do  func()
}

// ProcessorTime is what this process, or the children that it waited for, have used so far, user and system together.
func ProcessorTime(b *testing.B, who int) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(who, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
