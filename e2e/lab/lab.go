// Package lab boots small virtual machines with Debian's kernels, for tests that say "this kernel, this state, run
// this, look again".
//
// A Lab is a network namespace that belongs to the process which started it, with a bridge on which its guests and its
// host programs meet. Everything in it, the virtual machines too, is tied to that process by the kernel: killed in
// whatever way, it leaves nothing behind, no process, no link, no namespace, no file. Kernels and the guests' file
// system are made once and kept under a cache folder.
//
// It needs root, the Debian packages of Packages and, the first time, Debian's archive.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// The lab's two networks are parts of the benchmarking range (RFC 2544), which no capture uses: one for the guests'
// traffic, one for the lab's control.
const (
	trafficNetwork = "198.18"
	controlNetwork = "198.19"
)

// address is that of a guest, by its number from 1 on, or of the lab itself, which is number 0.
func address(network string, number int) string {
	const perRow = 250
	if number == 0 {
		return network + ".0.1"
	}
	return fmt.Sprintf("%s.%d.%d", network, 1+number/perRow, 1+number%perRow)
}

// Options say how a lab is set up. The zero value is good.
type Options struct {
	// Accel is "tcg", "kvm" or "auto"; empty takes OFFRAMP_LAB_ACCEL, and without it "auto". See ParseAccel.
	Accel Accel
	// CacheDir is where kernels and file systems are kept; empty is CacheDir().
	CacheDir string
	// Log gets a line for each thing that takes long, nil for none. It may be written to from several goroutines, one
	// at a time.
	Log io.Writer
}

// Lab is a network of its own with guests. Its methods may be called from several goroutines.
type Lab struct {
	options Options
	space   *namespace
	cache   cache

	mu     sync.Mutex
	guests []*Guest
	count  int
	closed bool
}

// Start makes an empty lab. It is torn down by Close, by ctx's end, and by the end of the `go test` or `go run` that
// this process belongs to.
func Start(ctx context.Context, options Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab needs root: it makes network namespaces and links")
	}
	if err := CheckTools(); err != nil {
		return nil, err
	}
	if options.Accel == "" {
		accel, err := ParseAccel(os.Getenv(AccelVariable))
		if err != nil {
			return nil, err
		}
		options.Accel = accel
	}
	store, err := openCache(options.CacheDir)
	if err != nil {
		return nil, err
	}
	l := &Lab{options: options, cache: store}
	addresses := []string{address(trafficNetwork, 0) + "/16", address(controlNetwork, 0) + "/16"}
	if l.space, err = newNamespace(ctx, func() error { return makeBridge(addresses) }); err != nil {
		return nil, err
	}
	l.space.onEnd(l.killGuests)
	return l, nil
}

// HostAddr is the address at which guests reach programs started with Command and sockets opened with Listen.
func (*Lab) HostAddr() string { return address(trafficNetwork, 0) }

// Do runs f on a thread inside the lab's network namespace: sockets that f opens belong to it for as long as they
// live. f must not start processes; see Command.
func (l *Lab) Do(f func() error) error { return l.space.do(f) }

// Dial connects from inside the lab's network. address is IP:port.
func (l *Lab) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := l.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen opens a socket inside the lab's network. address is IP:port, as HostAddr()+":0".
func (l *Lab) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := l.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return listener, err
}

// Close ends all guests and host programs and waits until they are gone.
func (l *Lab) Close() error {
	l.mu.Lock()
	guests := l.guests
	l.closed = true
	l.mu.Unlock()
	var all error
	for _, g := range guests {
		all = errors.Join(all, g.Close())
	}
	l.space.close()
	return all
}

func (l *Lab) killGuests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		g.machine.kill()
	}
}

// next is the number of the next guest, from 1.
func (l *Lab) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return l.count
}

// adopt makes the lab answer for a guest's end.
func (l *Lab) adopt(g *Guest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the lab is closed")
	}
	l.guests = append(l.guests, g)
	return nil
}

// logf notes something and how long it took.
func (l *Lab) logf(since time.Time, format string, args ...any) {
	if l.options.Log == nil {
		return
	}
	took := time.Since(since).Round(100 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.options.Log, "lab: %s (%s)\n", fmt.Sprintf(format, args...), took)
}
