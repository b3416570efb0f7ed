package lab

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// orphanPoll is how often it is looked whether the test run is still there.
const orphanPoll = 500 * time.Millisecond

// goAncestors returns the processes named go (go test, go run) directly above pid, nearest first, each with its parent.
// They do not pass their own death on: without looking, a test would go on for minutes after its go test was killed.
func goAncestors(proc string, pid int) []ancestor {
	var all []ancestor
	for at := parent(proc, pid); at > 1 && comm(proc, at) == "go"; at = parent(proc, at) {
		all = append(all, ancestor{child: pid, pid: at})
		pid = at
	}
	return all
}

// ancestor says that pid was the parent of child.
type ancestor struct{ child, pid int }

// waitForOrphaned returns at ctx's end, or when one of the processes is no longer the parent it was.
func waitForOrphaned(ctx context.Context, ancestors []ancestor) {
	ticks := time.NewTicker(orphanPoll)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			for _, a := range ancestors {
				if parent("/proc", a.child) != a.pid {
					return
				}
			}
		}
	}
}

func comm(proc string, pid int) string {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// parent returns the PID of pid's parent, 0 if it cannot be told. The command's name in stat may hold anything, so what
// counts is what follows its last parenthesis: state, then parent.
func parent(proc string, pid int) int {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	number, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return number
}
