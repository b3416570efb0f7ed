package main

import (
	"os"
	"runtime/debug"
)

// garbagePercent is how much garbage may lie about, in percent of what is in use. An aggregator holds much and makes little: Go's
// own 100 would nearly double the memory per node (docs/performance.md).
const garbagePercent = 50

// collectOften sets how often garbage is collected, unless whoever started the program did by GOGC.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
