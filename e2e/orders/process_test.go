package orders

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs.
type process struct {
	*testing.T
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

// start starts a program. It is killed with the test.
func start(t *testing.T, name string, env []string, argv ...string) *process {
	t.Helper()
	p := &process{T: t, name: name, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			said := p.said()
			t.Logf("%s said:\n%s", name, said[max(0, len(said)-4000):])
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

func (p *process) signal(signal syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.Fatalf("signal %v to %s: %v", signal, p.name, err)
	}
}

// code waits for the end of the program.
func (p *process) code() int {
	p.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patient):
		p.Fatalf("%s does not end within %s", p.name, patient)
		return -1
	}
}

func (p *process) says(text string) func() bool {
	return func() bool { return strings.Contains(p.said(), text) }
}

// native runs a native tool.
func native(t *testing.T, input string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

// until looks again and again, as fast as it can: what it waits for may be over in a moment.
func until(t *testing.T, what string, happens func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happens(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}
