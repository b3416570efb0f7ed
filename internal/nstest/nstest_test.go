package nstest

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scenario names what the inner tests below do when another test of this file has started them.
const scenario = "OFFRAMP_NSTEST_SCENARIO"

func TestEnterIsElsewhere(t *testing.T) {
	if !Enter(t) {
		return
	}
	here, err := os.Readlink(selfNetwork)
	if err != nil {
		t.Fatal(err)
	}
	if outside := os.Getenv(outsideMarker); here == outside {
		t.Errorf("network namespace %s is the host's", here)
	}
	if pid := os.Getpid(); pid != 1 {
		t.Errorf("PID %d, want 1", pid)
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != "1" {
		t.Errorf("/proc/self is %q (%v), want 1: /proc is not the namespace's", self, err)
	}
	connection, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening on lo: %v", err)
	}
	_ = connection.Close()
}

func TestSysfsShowsTheNamespace(t *testing.T) {
	if !Enter(t) {
		return
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(links) != len(kernel) {
		t.Errorf("/sys/class/net shows %d links, the kernel has %d", len(links), len(kernel))
	}
}

func TestSubtestsEnterToo(t *testing.T) {
	if !Enter(t) {
		return
	}
	outer, err := os.Readlink(selfNetwork)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a name/with, odd (things)", func(t *testing.T) {
		if !Enter(t) {
			return
		}
		if inner, err := os.Readlink(selfNetwork); err != nil || inner == outer && os.Getenv(outsideMarker) == outer {
			t.Errorf("sub-test is in %s (%v), its parent's", inner, err)
		}
	})
}

// TestInner is what the outcome tests run in a process of their own; by itself it does nothing.
func TestInner(t *testing.T) {
	what := os.Getenv(scenario)
	if what == "" {
		t.Skip("only for the other tests")
	}
	if !Enter(t) {
		return
	}
	switch what {
	case "fail":
		t.Error("said inside")
	case "skip":
		t.Skip("said inside")
	case "panic":
		panic("said inside")
	case "no tool":
		NeedTool(t, "a-program-that-nobody-has")
	case "no kernel":
		NeedKernel(t, "a_module_that_nobody_has")
	case "hang":
		child := exec.Command("sleep", "3600")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Log("hanging")
		time.Sleep(time.Hour)
	}
}

func inner(t *testing.T, what string, env ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInner$", "-test.v")
	cmd.Env = append(os.Environ(), scenario+"="+what, RequireKernel+"=", InGuest+"=")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func TestOutcomeIsTakenOver(t *testing.T) {
	for _, c := range []struct{ what, env, result, says string }{
		{"pass", "", "PASS", ""},
		{"fail", "", "FAIL", "said inside"},
		{"panic", "", "FAIL", "said inside"},
		{"skip", "", "SKIP", "said inside"},
		{"no tool", "", "SKIP", "a-program-that-nobody-has"},
		{"no tool", RequireKernel + "=1", "FAIL", "a-program-that-nobody-has"},
		{"no kernel", RequireKernel + "=1", "SKIP", "runs in the VM"},
		{"no kernel", InGuest + "=1", "FAIL", "a_module_that_nobody_has"},
	} {
		t.Run(c.what+" "+c.env, func(t *testing.T) {
			out, err := inner(t, c.what, c.env).CombinedOutput()
			if (err != nil) != (c.result == "FAIL") {
				t.Errorf("exit %v, want result %s", err, c.result)
			}
			if !strings.Contains(string(out), "--- "+c.result+": TestInner") || !strings.Contains(string(out), c.says) {
				t.Errorf("want %s and %q in:\n%s", c.result, c.says, out)
			}
		})
	}
}

func TestMarkerSetByHandIsRefused(t *testing.T) {
	out, err := inner(t, "pass", childMarker+"=TestInner", outsideMarker+"=").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not a fresh namespace") {
		t.Errorf("exit %v, output:\n%s", err, out)
	}
}

func TestKilledFromOutsideLeavesNothing(t *testing.T) {
	cmd := inner(t, "hang")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitForLine(t, out, "hanging")
	family := descendants(t, cmd.Process.Pid)
	if len(family) != 2 {
		t.Errorf("%d descendants %v, want the inner test and its sleep", len(family), family)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range family {
		waitGone(t, pid)
	}
}

func waitForLine(t *testing.T, out io.Reader, want string) {
	t.Helper()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), want) {
			return
		}
	}
	t.Fatalf("the output ended without %q", want)
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		// Ended is enough: the host's PID 1 may take its time to reap what it inherits.
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
}

func descendants(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(append(all, child), descendants(t, child)...)
		}
	}
	return all
}
