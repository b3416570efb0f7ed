package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace held by one thread of this process and by nothing else: no name, no mount. Processes
// are started from that thread, so that the kernel's parent-death signal, which is tied to it, ends them with it.
type namespace struct {
	work   chan func()
	stop   chan struct{}
	ended  chan struct{}
	handle *os.File
	cancel context.CancelFunc
	ends   sync.WaitGroup

	mu    sync.Mutex
	atEnd []func()
}

// newNamespace makes a namespace and has it set up from inside. It ends with ctx or by close.
func newNamespace(ctx context.Context, setup func() error) (*namespace, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := &namespace{work: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
	ready := make(chan error, 1)
	go onOwnThread(func() { n.hold(ready) })
	if err := <-ready; err != nil {
		cancel()
		return nil, err
	}
	if err := n.do(setup); err != nil {
		cancel()
		close(n.stop)
		return nil, err
	}
	n.ends.Add(1)
	go n.watch(ctx)
	return n, nil
}

// onOwnThread runs f on a thread that ends with it. The main thread cannot end and is what /proc/self shows, so that
// one is never taken.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	taken := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(taken)
		f()
	}()
	<-taken
	runtime.UnlockOSThread()
}

// hold is the life of the holding thread. Once it is over the thread is given up, and with it the namespace.
func (n *namespace) hold(ready chan<- error) {
	defer close(n.ended)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		ready <- fmt.Errorf("making a network namespace: %w", err)
		return
	}
	handle, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		ready <- fmt.Errorf("opening the network namespace: %w", err)
		return
	}
	n.handle = handle
	defer func() { _ = handle.Close() }()
	ready <- nil
	for {
		select {
		case job := <-n.work:
			job()
		case <-n.stop:
			return
		}
	}
}

// watch ends everything when ctx or the test run that this process belongs to does.
func (n *namespace) watch(ctx context.Context) {
	defer n.ends.Done()
	waitForOrphaned(ctx, goAncestors("/proc", os.Getpid()))
	n.cancel()
	n.mu.Lock()
	ends := n.atEnd
	n.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// onEnd adds what has to be done at the end, before the namespace itself goes.
func (n *namespace) onEnd(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.atEnd = append(n.atEnd, f)
}

// do runs f on a short-lived thread inside the namespace.
func (n *namespace) do(f func() error) error {
	result := make(chan error, 1)
	go onOwnThread(func() {
		if err := unix.Setns(int(n.handle.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering the lab's network namespace: %w", err)
			return
		}
		result <- f()
	})
	return <-result
}

// start starts a process in the namespace that dies with this one. It gets a process group of its own: a Ctrl-C meant
// for the test ends it by the test's end.
func (n *namespace) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	select {
	case n.work <- func() { result <- cmd.Start() }:
	case <-n.ended:
		return errors.New("the lab is closed")
	}
	return <-result
}

// close gives the namespace up. It is called once, when nothing is started any more.
func (n *namespace) close() {
	n.cancel()
	n.ends.Wait()
	close(n.stop)
	<-n.ended
}
