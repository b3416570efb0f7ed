package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// defaultWait bounds a wait for the kernel when the context has no deadline.
const defaultWait = 10 * time.Second

// socket is a netlink socket for dumps. Not for concurrent use.
type socket struct {
	protocol int
	handle   *nl.SocketHandle
}

// openSocket opens a socket of a netlink protocol (unix.NETLINK_...) in the process' network namespace. Opening one whose
// protocol is not there makes the kernel load a module: callers check before.
func openSocket(protocol int) (*socket, error) {
	raw, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), protocol)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return &socket{protocol: protocol, handle: &nl.SocketHandle{Socket: raw}}, nil
}

func (s *socket) close() { s.handle.Close() }

// dump sends a request and hands each message of the answer, without its netlink header, to visit. A dump that the kernel
// calls interrupted is errTorn. No wait outlasts the context's deadline.
func (s *socket) dump(ctx context.Context, request *nl.NetlinkRequest, visit func([]byte) error) error {
	wait := unix.NsecToTimeval(int64(timeLeft(ctx)))
	if err := errors.Join(s.handle.Socket.SetReceiveTimeout(&wait), s.handle.Socket.SetSendTimeout(&wait)); err != nil {
		return err
	}
	request.Sockets = map[int]*nl.SocketHandle{s.protocol: s.handle}
	var refused error
	err := request.ExecuteIter(s.protocol, 0, func(message []byte) bool {
		refused = ctx.Err()
		if refused == nil {
			refused = visit(message)
		}
		return refused == nil
	})
	switch {
	case refused != nil:
		return refused
	case errors.Is(err, nl.ErrDumpInterrupted):
		return errTorn
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("the kernel did not answer in time: %w", context.DeadlineExceeded)
	}
	return err
}

// timeLeft is how long a wait may last; at least a moment, since 0 would mean for ever.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultWait
	}
	return max(time.Until(deadline), time.Millisecond)
}
