package lab_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// scenario makes a process started by the tests below one that holds a lab, or one that stands for go test above it.
const scenario = "OFFRAMP_LAB_TEST_SCENARIO"

func TestMain(m *testing.M) {
	switch os.Getenv(scenario) {
	case "hold":
		holdLab()
	case "go":
		beGoTest()
	default:
		os.Exit(m.Run())
	}
}

// holdLab starts a lab with a host program in it and boots a guest for as long as that is possible.
func holdLab() {
	ctx := context.Background()
	l, err := lab.Start(ctx, lab.Options{Accel: lab.TCG})
	if err == nil {
		err = l.Command(ctx, "sleep", "1000").Start()
	}
	for err == nil {
		_, err = l.Boot(ctx, lab.VM{Name: "left", Kernel: "6.1"})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// beGoTest runs a test as go test does: without passing its own death on.
func beGoTest() {
	child := exec.Command(os.Getenv(scenario + "_BINARY"))
	child.Env = append(os.Environ(), scenario+"=hold")
	child.Stderr = os.Stderr
	_ = child.Run()
}

func TestNothingIsLeftBehind(t *testing.T) {
	l := labtest.Start(t)
	labtest.Boot(t, l, lab.VM{Name: "warm", Kernel: "6.1"}) // the cache is filled, so that the holders boot at once
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	goTest := filepath.Join(t.TempDir(), "go")
	if err := os.Symlink(binary, goTest); err != nil {
		t.Fatal(err)
	}
	before := hostLinks(t)
	for _, c := range []struct {
		name, program, scenario string
		signal                  syscall.Signal
	}{
		{"SIGKILL", binary, "hold", unix.SIGKILL},
		{"Ctrl-C", binary, "hold", unix.SIGINT},
		{"SIGTERM", binary, "hold", unix.SIGTERM},
		{"SIGKILL of go test", goTest, "go", unix.SIGKILL},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(c.program)
			cmd.Env = append(os.Environ(), scenario+"="+c.scenario, scenario+"_BINARY="+binary)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			leavesNothing(t, cmd, c.signal)
		})
	}
	if after := hostLinks(t); !slices.Equal(before, after) {
		t.Errorf("the host's links were %v and are %v", before, after)
	}
}

func leavesNothing(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) {
	var family []int
	waitFor(t, "the virtual machine and the host program", func() bool {
		family = descendants(t, cmd.Process.Pid)
		names := commands(family)
		return slices.Contains(names, "qemu-system-x86") && slices.Contains(names, "sleep")
	})
	t.Cleanup(func() { endAll(family) })
	spaces := networkNamespaces(t, family)
	if len(spaces) != 1 {
		t.Fatalf("the lab's processes are in the network namespaces %v, want one that is not the host's", spaces)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range family {
		waitFor(t, fmt.Sprintf("the end of %d", pid), func() bool { return !running(pid) })
	}
	// A namespace without name, mount and process is gone, and with it bridge and taps.
	if left := usersOf(t, spaces[0]); len(left) > 0 {
		t.Errorf("processes %v are still in the lab's network namespace", left)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), "nsfs") {
		t.Errorf("a namespace is mounted (%v)", err)
	}
}

// endAll ends what a failed test has shown to be left.
func endAll(pids []int) {
	for _, pid := range pids {
		if running(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
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

// running says whether a process is there and has not ended: the host's PID 1 may take its time to reap what it inherits.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func commands(pids []int) []string {
	var names []string
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		names = append(names, strings.TrimSpace(string(name)))
	}
	return names
}

// networkNamespaces lists those of the processes that are not this test's.
func networkNamespaces(t *testing.T, pids []int) []string {
	t.Helper()
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, pid := range pids {
		space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil && space != here && !slices.Contains(all, space) {
			all = append(all, space)
		}
	}
	return all
}

// usersOf lists the threads of the host that are in a network namespace.
func usersOf(t *testing.T, space string) []string {
	t.Helper()
	handles, err := filepath.Glob("/proc/[0-9]*/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(handles, func(handle string) bool {
		at, err := os.Readlink(handle)
		return err != nil || at != space
	})
}

func descendants(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(append(all, child), descendants(t, child)...)
		}
	}
	return all
}
