package main

import (
	"math"
	"os"
	"runtime/debug"
)

// garbagePercent is how much garbage may lie about, in percent of what is in use. An aggregator holds much and makes little: Go's
// own 100 would nearly double the memory per node (docs/performance.md).
const garbagePercent = 50

// collectOften sets how often garbage is collected, unless whoever started the program did by GOGC. GOMEMLIMIT, which is the container's
// limit (deploy/base), counts for a tenth less: the kernel's memory for sockets, some 4 KiB for each node, counts for the container, too, and one
// that is full is killed where the collector could still have made room.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit - limit/10)
	}
}
