package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// defaultWait bounds a wait for the kernel when the context has no deadline.
const defaultWait = 10 * time.Second

// socket is a netlink socket for dumps. All answers go through one buffer, where the netlink library would make a new one
// for each datagram and copy every message. Not for concurrent use.
type socket struct{ nftSocket }

// openSocket opens a socket of a netlink protocol (unix.NETLINK_...) in the process' network namespace. Opening one whose
// protocol is not there makes the kernel load a module: callers check before.
func openSocket(protocol int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(nftWait))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, errors.Join(fmt.Errorf("limit the wait of a netlink socket: %w", err), unix.Close(fd))
	}
	return &socket{nftSocket{fd: fd, buffer: make([]byte, nftBuffer)}}, nil
}

func (s *socket) close() { _ = s.nftSocket.close() }

// dump sends a request and hands each message of the answer, without its netlink header, to visit; its bytes are only good
// meanwhile. A dump that the kernel calls interrupted is errTorn. No wait outlasts the context's deadline.
func (s *socket) dump(ctx context.Context, request *nl.NetlinkRequest, visit func([]byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeLeft(ctx))
	defer cancel()
	return s.ask(ctx, request, visit)
}

// timeLeft is how long a wait may last; at least a moment.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultWait
	}
	return max(time.Until(deadline), time.Millisecond)
}
