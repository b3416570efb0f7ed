package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// nftGroup is NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h.
	nftGroup = 7
	// nftRetry is how long to wait before looking again for an nf_tables that can be listened to.
	nftRetry = 30 * time.Second
	// restFactor: of the time that scans for announced changes take, so many times as much is spent resting.
	restFactor = 5
	// networkBuffer holds, in bytes, some thousand notifications. smallestBuffer makes the kernel take its own minimum.
	networkBuffer  = 1 << 20
	smallestBuffer = 0
)

// Run listens to what the kernel announces until ctx ends. What cannot be listened to is read each time instead.
func (w *Watcher) Run(ctx context.Context) error {
	dirty := make(chan struct{}, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { w.listenToNetwork(ctx, dirty); return nil })
	group.Go(func() error { w.listenToNFT(ctx, dirty); return nil })
	group.Go(func() error { w.debounce(ctx, dirty); return nil })
	return group.Wait()
}

// debounce asks for a scan a while after something was announced.
func (w *Watcher) debounce(ctx context.Context, dirty <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-dirty:
		}
		w.mu.Lock()
		rest := max(w.config.Debounce, restFactor*w.took)
		w.mu.Unlock()
		if !sleep(ctx, rest) {
			return
		}
		signal(w.changes)
	}
}

// sleep reports whether ctx lasted as long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// signal leaves a token, unless one is there.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (w *Watcher) announce(dirty chan<- struct{}, kinds []offrampv1.SectionKind) {
	if len(kinds) > 0 {
		w.mark(kinds)
		signal(dirty)
	}
}

func (w *Watcher) mark(kinds []offrampv1.SectionKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		w.announced[kind] = true
	}
}

// listenToNetwork listens to links, addresses and routes of both families.
func (w *Watcher) listenToNetwork(ctx context.Context, dirty chan<- struct{}) {
	ears, err := listen(ctx, unix.NETLINK_ROUTE, networkBuffer,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return
	}
	defer ears.close()
	w.setListening(true)
	defer w.setListening(false)
	// What happened before was not announced.
	w.mark(networkKinds())
	events := networkEvents{names: map[int32]string{}}
	buffer := make([]byte, 64<<10)
	for {
		length, err := ears.read(buffer)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.announce(dirty, networkKinds()) // the kernel had more to say than it could
		case err != nil:
			return
		default:
			w.announce(dirty, events.all(buffer[:length]))
		}
	}
}

func (w *Watcher) setListening(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listening = on
}

// all takes a datagram of messages.
func (e *networkEvents) all(datagram []byte) []offrampv1.SectionKind {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return networkKinds()
	}
	var kinds []offrampv1.SectionKind
	for _, message := range messages {
		kinds = append(kinds, e.concerns(message.Header.Type, message.Data)...)
	}
	return kinds
}

// listenToNFT wakes the scan when the ruleset moves; the generation tells it whether it did. It listens only where
// nf_tables is there: joining the group would make the kernel load it (nfnetlink_bind in net/netfilter/nfnetlink.c).
func (w *Watcher) listenToNFT(ctx context.Context, dirty chan<- struct{}) {
	for ctx.Err() == nil {
		if loaded, err := w.scanner.modules.loaded(featureNFTables); err == nil && loaded {
			w.hearNFT(ctx, dirty)
		}
		sleep(ctx, nftRetry)
	}
}

func (w *Watcher) hearNFT(ctx context.Context, dirty chan<- struct{}) {
	// A commit of ten thousand rules is as many messages, of which one is enough: the rest may be lost.
	ears, err := listen(ctx, unix.NETLINK_NETFILTER, smallestBuffer, nftGroup)
	if err != nil {
		return
	}
	defer ears.close()
	buffer := make([]byte, 4<<10)
	for {
		if _, err := ears.read(buffer); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		signal(dirty)
		if !sleep(ctx, w.config.Debounce) || !ears.drain(buffer) {
			return
		}
	}
}

// ears are a netlink socket that is subscribed to groups.
type ears struct {
	file *os.File
	raw  syscall.RawConn
	stop func() bool
}

// listen subscribes, with room for so many bytes of what is not read yet. Reading ends when ctx does.
func listen(ctx context.Context, protocol, room int, groups ...uint) (*ears, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "netlink")
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, group := range groups {
		address.Groups |= 1 << (group - 1)
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room), unix.Bind(fd, address))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to netlink groups: %w", err), file.Close())
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &ears{file: file, raw: raw, stop: context.AfterFunc(ctx, func() { _ = file.Close() })}, nil
}

func (e *ears) close() {
	e.stop()
	_ = e.file.Close()
}

// read waits for a datagram.
func (e *ears) read(buffer []byte) (length int, err error) {
	waitErr := e.raw.Read(func(fd uintptr) bool {
		length, err = unix.Read(int(fd), buffer)
		return !errors.Is(err, unix.EAGAIN)
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return length, err
}

// drain throws away what is there. It reports whether the socket is still good.
func (e *ears) drain(buffer []byte) bool {
	var err error
	waitErr := e.raw.Read(func(fd uintptr) bool {
		for err == nil || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) {
			_, err = unix.Read(int(fd), buffer)
		}
		return true
	})
	return waitErr == nil && errors.Is(err, unix.EAGAIN)
}
