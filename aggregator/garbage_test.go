package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// A tenth of what the container may take is left for what the collector does not see; without a limit there is none.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	percent := debug.SetGCPercent(100)
	defer func() { debug.SetMemoryLimit(before); debug.SetGCPercent(percent) }()
	for limit, want := range map[int64]int64{1000 << 20: 900 << 20, math.MaxInt64: math.MaxInt64} {
		debug.SetMemoryLimit(limit)
		collectOften()
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("with %d: %d, want %d", limit, got, want)
		}
	}
}
