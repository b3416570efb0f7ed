package cleanup

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// nftAnswerRoom is for one datagram of answers: an error repeats the message that it is about.
const nftAnswerRoom = 256 << 10

// commit gives a transaction to the kernel. Without an error it was done. After errChanged or a *refusedError nothing
// was; after any other error it takes another look to tell.
//
// The kernel works on it, and answers, before the call that sends it returns. A context that is over stops it before that
// call, not in it.
func (b *nftBatch) commit(ctx context.Context) error {
	if b.messages == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	data := b.close()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	return errors.Join(b.exchange(fd, data), unix.Close(fd))
}

func (b *nftBatch) exchange(fd int, data []byte) error {
	// The kernel takes a message of at most the buffer's size less a little (netlink_sendmsg).
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(data)+4096); err != nil {
		return fmt.Errorf("make room for a transaction of %d bytes: %w", len(data), err)
	}
	if err := unix.Sendto(fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send a transaction to nf_tables: %w", err)
	}
	buffer := make([]byte, nftAnswerRoom)
	for {
		length, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return errors.Join(errNoAnswer, err)
		}
		if ended, err := b.verdict(buffer[:length]); ended || err != nil {
			return err
		}
	}
}
