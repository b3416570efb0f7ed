package collect

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// nftAnswer takes the answer to one request apart, datagram by datagram.
type nftAnswer struct {
	sequence uint32
	visit    func(message []byte) error
	// done: the answer is complete. err is what the kernel or visit complained of first: after that the rest of the answer
	// is received and dropped, since a socket answers one dump at a time.
	done bool
	err  error
}

// take takes a datagram apart. Messages that answer an earlier request are skipped.
func (a *nftAnswer) take(datagram []byte) {
	for len(datagram) >= unix.NLMSG_HDRLEN && !a.done {
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < unix.NLMSG_HDRLEN || length > len(datagram) {
			a.done = true
			a.fail(errMalformed)
			return
		}
		if binary.NativeEndian.Uint32(datagram[8:]) == a.sequence {
			kind, flags := binary.NativeEndian.Uint16(datagram[4:]), binary.NativeEndian.Uint16(datagram[6:])
			a.message(kind, flags, datagram[unix.NLMSG_HDRLEN:length])
		}
		datagram = datagram[min((length+3)&^3, len(datagram)):]
	}
}

func (a *nftAnswer) message(kind, flags uint16, body []byte) {
	if flags&unix.NLM_F_DUMP_INTR != 0 {
		a.fail(errTorn)
	}
	switch {
	case kind == unix.NLMSG_DONE, kind == unix.NLMSG_ERROR:
		a.done = true
		a.fail(answerError(kind, body))
	case kind < unix.NLMSG_MIN_TYPE:
		a.fail(fmt.Errorf("a message of netlink's own type %d: %w", kind, errMalformed))
	default:
		if a.err == nil {
			a.fail(a.visit(body))
		}
		a.done = flags&unix.NLM_F_MULTI == 0
	}
}

// answerError returns what the end of an answer says: a negative errno, or 0. The end of a dump may say nothing.
func answerError(kind uint16, body []byte) error {
	if len(body) < 4 {
		if kind == unix.NLMSG_DONE {
			return nil
		}
		return errMalformed
	}
	if number := int32(binary.NativeEndian.Uint32(body)); number < 0 { //nolint:gosec // it is a signed number
		return unix.Errno(-number)
	}
	return nil
}

// fail remembers the first error.
func (a *nftAnswer) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}
