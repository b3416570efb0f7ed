package nstest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// relay passes the child's output on line by line, marked, so that no tool takes an inner result line for an outer
// one, and notes how the test ended.
type relay struct {
	out     io.Writer
	name    string
	rest    []byte
	passed  bool
	skipped bool
}

func newRelay(out io.Writer, name string) *relay { return &relay{out: out, name: name} }

// Write implements io.Writer.
func (r *relay) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		r.rest = rest
		r.line(string(line))
	}
}

// flush passes on a last line that did not end.
func (r *relay) flush() {
	if len(r.rest) > 0 {
		r.line(string(r.rest))
		r.rest = nil
	}
}

func (r *relay) line(line string) {
	result := strings.TrimLeft(line, " ")
	r.passed = r.passed || strings.HasPrefix(result, "--- PASS: "+r.name+" ")
	r.skipped = r.skipped || strings.HasPrefix(result, "--- SKIP: "+r.name+" ")
	if line == "PASS" || line == "FAIL" || strings.HasPrefix(line, "=== ") {
		return
	}
	_, _ = fmt.Fprintf(r.out, "| %s\n", line)
}
