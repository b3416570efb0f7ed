package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// nftBuffer holds any datagram of a dump: the kernel fills at most 32 KiB (netlink_dump in net/netlink/af_netlink.c).
	nftBuffer = 64 << 10
	// nftWait is how long the kernel may be silent before the context is looked at again.
	nftWait = 100 * time.Millisecond
)

// nftSocket asks nf_tables. All answers go through one buffer: a dump of 15,000 rules is ten megabytes. Not for concurrent
// use.
type nftSocket struct {
	fd     int
	buffer []byte
}

// openNFT opens a socket of nfnetlink. Where nfnetlink is not there, this makes the kernel load it: callers check before.
func openNFT() (*nftSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(nftWait))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, errors.Join(fmt.Errorf("limit the wait of a netlink socket: %w", err), unix.Close(fd))
	}
	return &nftSocket{fd: fd, buffer: make([]byte, nftBuffer)}, nil
}

func (s *nftSocket) close() error { return unix.Close(s.fd) }

// ask sends a request and hands each message of the answer, without its netlink header, to visit; its bytes are only good
// meanwhile. A dump that the kernel calls interrupted is errTorn.
func (s *nftSocket) ask(ctx context.Context, request *nl.NetlinkRequest, visit func(message []byte) error) error {
	if err := unix.Sendto(s.fd, request.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := nftAnswer{sequence: request.Seq, visit: visit}
	for !answer.done {
		if err := ctx.Err(); err != nil {
			return err
		}
		length, from, err := unix.Recvfrom(s.fd, s.buffer, unix.MSG_TRUNC)
		switch sender, _ := from.(*unix.SockaddrNetlink); {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case length > len(s.buffer):
			return errMalformed
		case sender != nil && sender.Pid == 0: // the kernel, not another process
			answer.take(s.buffer[:length])
		}
	}
	return answer.err
}
