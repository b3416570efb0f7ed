package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// check prints what ran, and returns what is wrong: a required state of which no test passed on one of the kernels, and a
// test of any state that failed or was skipped there. Tests that ran elsewhere are printed and count for nothing.
func check(w io.Writer, runs []run, kernels []string) (wrong []string) {
	sortRuns(runs)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "STATE\tTEST\tKERNEL\tRESULT\tWHAT")
	for _, s := range states() {
		of := runsOf(runs, s.number)
		for _, r := range of {
			_, _ = fmt.Fprintf(table, "%02d\t%s\t%s\t%s\t%s\n", s.number, r.test, r.kernel, r.result, s.what)
		}
		for _, kernel := range kernels {
			verdict := judge(of, kernel)
			if verdict == missing {
				_, _ = fmt.Fprintf(table, "%02d\t-\t%s\t%s\t%s\n", s.number, kernel, verdict, s.what)
			}
			if verdict != "" && (s.required || verdict != missing) {
				wrong = append(wrong, fmt.Sprintf("state %02d (%s) on kernel %s: %s", s.number, s.what, kernel, verdict))
			}
		}
	}
	_ = table.Flush()
	return wrong
}

const missing = "missing"

func runsOf(runs []run, number int) []run {
	var of []run
	for _, r := range runs {
		if r.number == number {
			of = append(of, r)
		}
	}
	return of
}

// judge is empty where all tests of a state that ran on a kernel passed, and one did.
func judge(runs []run, kernel string) string {
	verdict := missing
	for _, r := range runs {
		switch {
		case r.kernel != kernel:
		case r.result != "pass":
			return r.test + " " + r.result
		default:
			verdict = ""
		}
	}
	return verdict
}

// strangers are runs of states that are not in the list.
func strangers(runs []run) []string {
	var strange []string
	for _, r := range runs {
		if !slices.ContainsFunc(states(), func(s state) bool { return s.number == r.number }) && !slices.Contains(strange, r.test) {
			strange = append(strange, r.test)
		}
	}
	return strange
}
