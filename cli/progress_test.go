package main

import (
	"bytes"
	"testing"
)

// What only passes is for a terminal: a log would fill up with it.
func TestPassingProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.passing("%d nodes so far", 3)
	p.end()
	if out.Len() != 0 {
		t.Errorf("no terminal got %q", out.String())
	}
	p.terminal = true
	p.passing("%d nodes so far", 3)
	p.passing("%d nodes so far", 5)
	p.end()
	p.end()
	if want := "\r\x1b[K3 nodes so far\r\x1b[K5 nodes so far\r\x1b[K"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}
