package collect

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// nftBuffer holds any datagram of a dump: the kernel fills at most 32 KiB (netlink_dump in net/netlink/af_netlink.c).
	nftBuffer = 32 << 10
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
		length, sender, err := s.receive()
		switch {
		case err == unix.EAGAIN, err == unix.EINTR: //nolint:errorlint // as the system call returned it
		case err != nil:
			return err
		case length > len(s.buffer):
			return errMalformed
		case sender == 0: // the kernel, not another process
			answer.take(s.buffer[:length])
		}
	}
	return answer.err
}

// receive returns the length of a datagram, and the port that it is from. The kernel makes the next part of a dump while the
// one before is received, so that nearly always one is there: it is taken without telling the scheduler, which would
// hand the thread's work to another one three hundred times in a dump of 15,000 rules.
func (s *nftSocket) receive() (length int, sender uint32, err error) {
	length, sender, err = s.receiveNow()
	if err != unix.EAGAIN { //nolint:errorlint // as the system call returned it
		return length, sender, err
	}
	length, from, err := unix.Recvfrom(s.fd, s.buffer, unix.MSG_TRUNC)
	if address, ok := from.(*unix.SockaddrNetlink); ok {
		return length, address.Pid, err
	}
	return length, nobody, err
}

// nobody is no port of the kernel's.
const nobody = ^uint32(0)

func (s *nftSocket) receiveNow() (length int, sender uint32, err error) {
	var from unix.RawSockaddrNetlink
	size := uint32(unsafe.Sizeof(from))
	read, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buffer[0])), //nolint:gosec // as the system call wants it
		uintptr(len(s.buffer)), unix.MSG_TRUNC|unix.MSG_DONTWAIT,
		uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size))) //nolint:gosec // as the system call wants it
	if errno != 0 {
		return 0, nobody, errno
	}
	if from.Family != unix.AF_NETLINK || int(size) < unix.SizeofSockaddrNetlink {
		return int(read), nobody, nil
	}
	return int(read), from.Pid, nil
}
