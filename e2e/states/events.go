package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// onHost stands for the kernel of tests that ran outside a VM.
const onHost = "host"

// run is one test of a state that ran.
type run struct {
	number               int
	test, kernel, result string // result as go test -json says it: "pass", "fail", "skip"
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

var (
	stateTest  = regexp.MustCompile(`^TestState(\d\d)\D`)
	kernelLine = regexp.MustCompile(`^# kernel (\S+)( \(.*\))?\n$`) // e2e/lab/vmexec prints it before each
)

// reader takes what `go test -json` prints: it keeps the runs of state tests, and passes on what people want to read.
type reader struct {
	show    io.Writer
	kernels map[string]string // by package
	output  map[string]*strings.Builder
	runs    []run
}

func newReader(show io.Writer) *reader {
	return &reader{show: show, kernels: map[string]string{}, output: map[string]*strings.Builder{}}
}

// read takes all lines. What is no event is shown as it is.
func (r *reader) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				_, _ = r.show.Write(line)
			} else {
				r.take(&e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what go test prints: %w", err)
		}
	}
}

func (r *reader) take(e *event) {
	if match := kernelLine.FindStringSubmatch(e.Output); match != nil {
		r.kernels[e.Package] = match[1]
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.hold(key, e)
	case "pass", "fail", "skip":
		if held := r.output[key]; held != nil && e.Action == "fail" && e.Test != "" {
			_, _ = io.WriteString(r.show, held.String())
		}
		delete(r.output, key)
		r.note(e)
	}
}

// hold keeps what a test prints until it fails; what belongs to no test is shown at once.
func (r *reader) hold(key string, e *event) {
	if e.Test == "" {
		_, _ = io.WriteString(r.show, e.Output)
		return
	}
	if r.output[key] == nil {
		r.output[key] = &strings.Builder{}
	}
	r.output[key].WriteString(e.Output)
}

func (r *reader) note(e *event) {
	match := stateTest.FindStringSubmatch(e.Test)
	if match == nil || strings.Contains(e.Test, "/") {
		return
	}
	number, _ := strconv.Atoi(match[1])
	r.runs = append(r.runs, run{number, e.Test, cmp.Or(r.kernels[e.Package], onHost), e.Action})
}

func sortRuns(runs []run) {
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.test, b.test), compareKernels(a.kernel, b.kernel))
	})
}

// compareKernels compares versions by their numbers: 6.12 comes after 6.1, and the host first.
func compareKernels(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(version string) []int {
	var all []int
	for part := range strings.SplitSeq(version, ".") {
		number, _ := strconv.Atoi(part)
		all = append(all, number)
	}
	return all
}
