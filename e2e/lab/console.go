package lab

import (
	"bytes"
	"strings"
	"sync"
)

// console keeps what a machine writes to its serial line, and notices one line in it.
type console struct {
	want  string
	ready chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
	seen bool
}

func newConsole(want string) *console { return &console{want: want, ready: make(chan struct{})} }

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p)
	if !c.seen && bytes.Contains(c.text.Bytes(), []byte(c.want)) {
		c.seen = true
		close(c.ready)
	}
	return len(p), nil
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.text.String(), "\r\n", "\n")
}

// tail is the last lines, enough to see why a boot failed.
func (c *console) tail() string {
	const most = 40
	lines := strings.Split(strings.TrimSpace(c.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
