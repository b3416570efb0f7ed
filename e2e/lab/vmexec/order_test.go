package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync/atomic"
	"testing"
)

// The first kernel is done last, and is shown first.
func TestInOrder(t *testing.T) {
	second := make(chan struct{})
	var out writer
	code, err := inOrder(&out, []string{"5.10", "6.1", "6.12"}, 2, func(kernel string, w io.Writer) (int, error) {
		switch kernel {
		case "5.10":
			<-second
		case "6.1":
			defer close(second)
		}
		_, _ = fmt.Fprintf(w, "says %s\n", kernel)
		return map[string]int{"6.1": 3, "6.12": 4}[kernel], nil
	})
	const want = `^# kernel 5\.10 \(\d+s\)\nsays 5\.10\n# kernel 6\.1 \(\d+s\)\nsays 6\.1\n# kernel 6\.12 \(\d+s\)\nsays 6\.12\n$`
	if !regexp.MustCompile(want).MatchString(string(out)) || code != 3 || err != nil {
		t.Errorf("%d, %v, %q; want 3 and what each says in order", code, err, out)
	}
}

func TestInOrderKeepsTheLimit(t *testing.T) {
	var now, most atomic.Int32
	_, err := inOrder(io.Discard, make([]string, 20), 2, func(string, io.Writer) (int, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		return 0, nil
	})
	if most.Load() > 2 || err != nil {
		t.Errorf("%d at a time (%v), want 2", most.Load(), err)
	}
}

func TestInOrderTellsOfAnErrorAfterAll(t *testing.T) {
	var runs atomic.Int32
	broken := errors.New("no machine")
	_, err := inOrder(io.Discard, []string{"a", "b", "c"}, 1, func(kernel string, _ io.Writer) (int, error) {
		runs.Add(1)
		if kernel == "b" {
			return 0, broken
		}
		return 0, nil
	})
	if !errors.Is(err, broken) || runs.Load() != 3 {
		t.Errorf("%d runs and %v, want 3 and the error", runs.Load(), err)
	}
}

// writer collects what is written.
type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
