package cluster_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func processes(t *testing.T) []int {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, folder := range folders {
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// descendants are the processes that a process started, and those that they did.
func descendants(t *testing.T, root int) []int {
	t.Helper()
	family := []int{root}
	for i := 0; i < len(family); i++ {
		for _, pid := range processes(t) {
			if parentOf(pid) == family[i] {
				family = append(family, pid)
			}
		}
	}
	return family[1:]
}

// status is a line of /proc/PID/status, or "" for a process that has ended, reaped or not.
func status(pid int, key string) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || strings.Contains(string(content), "\nState:\tZ") {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func commandOf(pid int) string { return status(pid, "Name") }

func parentOf(pid int) int {
	parent, err := strconv.Atoi(status(pid, "PPid"))
	if err != nil {
		return -1
	}
	return parent
}

func spaceOf(pid int) string {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return ""
	}
	return space
}

// running are those of processes that have not ended.
func running(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return commandOf(pid) == "" })
}

// endAll is for when a test fails: it must not be the one that leaves something behind.
func endAll(pids []int) {
	for _, pid := range running(pids) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// spacesOf are the network namespaces of processes, but for the one that this test is in.
func spacesOf(pids []int) []string {
	var spaces []string
	for _, pid := range pids {
		if space := spaceOf(pid); space != "" && space != spaceOf(os.Getpid()) && !slices.Contains(spaces, space) {
			spaces = append(spaces, space)
		}
	}
	return spaces
}

// usersOf is what keeps network namespaces alive: threads in them, open files of theirs, mounts.
func usersOf(t *testing.T, spaces []string) []string {
	t.Helper()
	var users []string
	for _, pattern := range []string{"/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if target, err := os.Readlink(path); err == nil && slices.Contains(spaces, target) {
				users = append(users, path)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, space := range spaces {
		if strings.Contains(string(mounts), " "+space+" ") {
			users = append(users, "a mount of "+space)
		}
	}
	return users
}

func hostLinks(t *testing.T) []string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Name)
	}
	return names
}

// scratchFiles are what the cluster might leave in the folder for temporary files.
func scratchFiles(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"offramp-*", "endpoint-*"} {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}
