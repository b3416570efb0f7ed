package identity

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// process is a program that runs in the lab's network.
type process struct {
	name  string
	cmd   *lab.HostCommand
	out   *output
	ended chan struct{}
}

// output may be written and read at the same time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a program that ends with the test.
func start(t *testing.T, l *lab.Lab, name string, argv ...string) *process {
	t.Helper()
	return startCommand(t, name, l.Command(t.Context(), argv...))
}

func startCommand(t *testing.T, name string, cmd *lab.HostCommand) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, out: &output{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Env = append(os.Environ(), "HOME=/nonexistent", "KUBECONFIG=")
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			said := strings.Split(p.out.String(), "\n")
			t.Logf("%s said:\n%s", name, strings.Join(said[max(0, len(said)-30):], "\n"))
		}
	})
	return p
}

// stop ends the program, with what it started, and waits until it is gone.
func (p *process) stop() {
	select {
	case <-p.ended:
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
}

// says waits until the program has written a line with all the words, after the first from bytes.
func (p *process) says(t *testing.T, from int, words ...string) {
	t.Helper()
	eventually(t, 30*time.Second, p.name+" says "+strings.Join(words, ", "), func() bool {
		for line := range strings.Lines(p.out.String()[from:]) {
			if hasAll(line, words) {
				return true
			}
		}
		return false
	})
}

func hasAll(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return false
		}
	}
	return true
}

func eventually(t *testing.T, limit time.Duration, what string, happens func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !happens(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
