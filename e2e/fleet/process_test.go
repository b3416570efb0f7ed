package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program of ours that runs.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   *log
	ended chan struct{}
}

// start starts a program. It is killed with the test, which fails if the program is still there at its end.
func start(t *testing.T, name string, argv ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: &log{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.log.tail())
		}
		if p.runs() {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	})
	return p
}

func (p *process) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill is SIGKILL from outside: the program cannot say goodbye.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.pid(), syscall.SIGKILL); err != nil {
		t.Fatalf("killing %s: %v", p.name, err)
	}
	p.wait(t)
}

// terminate asks the program to end and returns its exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	if err := syscall.Kill(p.pid(), syscall.SIGTERM); err != nil {
		t.Fatalf("asking %s to end: %v", p.name, err)
	}
	p.wait(t)
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(15 * time.Second):
		t.Fatalf("%s does not end", p.name)
	}
}

// peak is the most memory that the program ever had, in bytes.
func (p *process) peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		t.Fatalf("%s is gone: %v", p.name, err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no memory of %s is shown", p.name)
	return 0
}

// run runs a program to its end and returns its standard output and exit code.
func run(argv ...string) (stdout string, code int, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), exit.ExitCode(), nil
	}
	return out.String(), 0, err
}

// others lists the processes of this test's namespace beside the test itself.
func others(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		name, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "comm"))
		if err == nil {
			all = append(all, entry.Name()+" "+strings.TrimSpace(string(name)))
		}
	}
	return all
}

// log keeps what a program writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines returns the lines that have all the words.
func (l *log) lines(words ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
next:
	for line := range strings.Lines(l.text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

func (l *log) tail() string {
	lines := l.lines()
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
