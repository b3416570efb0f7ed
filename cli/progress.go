package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// progress shows how far an order is: on a terminal in one line that changes, else a line for each step.
type progress struct {
	w        io.Writer
	terminal bool
	last     string
	open     bool
}

func newProgress(w io.Writer) *progress { return &progress{w: w, terminal: isTerminal(w)} }

// isTerminal reports whether a person reads or writes here.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Problems of showing progress are none of the order's: they are left out.
func (p *progress) step(told *offrampv1.OrderProgress) {
	step := render.Clean(told.GetStep())
	line := step
	if told.GetTotal() > 0 {
		line = fmt.Sprintf("%s (%d of %d operations)", step, told.GetDone(), told.GetTotal())
	}
	switch {
	case p.terminal:
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.open = true
	case step != p.last:
		_, _ = fmt.Fprintln(p.w, line)
	}
	p.last = step
}

// passing shows on a terminal alone how far something is.
func (p *progress) passing(format string, args ...any) {
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
		p.open = true
	}
}

// say prints a line of its own.
func (p *progress) say(format string, args ...any) {
	p.end()
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// end leaves the line that changes.
func (p *progress) end() {
	if p.open {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.open = false
	}
}
