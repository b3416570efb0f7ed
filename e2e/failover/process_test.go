package failover

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

// Write keeps what the program says.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start starts a program in a space. It is killed with the test.
func start(t *testing.T, at *space, name string, argv ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := at.do(p.cmd.Start); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if said := p.said(); t.Failed() {
			t.Logf("%s said at last:\n%s", name, said[max(0, len(said)-1500):])
		}
		p.kill()
	})
	return p
}

// kill is SIGKILL from outside: the program cannot say goodbye.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

func (p *process) signal(signal syscall.Signal) { _ = p.cmd.Process.Signal(signal) }

// until looks again and again.
func until(t *testing.T, limit time.Duration, what string, happens func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !happens(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to this within %s: %s", limit, what)
		}
	}
}

// native runs a native tool in a space.
func native(at *space, argv ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := at.do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return strings.TrimSpace(out.String()), err
}

func mustRun(t *testing.T, at *space, argv ...string) string {
	t.Helper()
	out, err := native(at, argv...)
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return out
}
