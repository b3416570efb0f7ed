package collect

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// netlinkMessage builds a message with its header.
func netlinkMessage(kind, flags uint16, sequence uint32, body []byte) []byte {
	data := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	data = binary.NativeEndian.AppendUint16(data, kind)
	data = binary.NativeEndian.AppendUint16(data, flags)
	data = binary.NativeEndian.AppendUint32(data, sequence)
	data = append(binary.NativeEndian.AppendUint32(data, 1), body...)
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	return data
}

func TestNFTAnswer(t *testing.T) {
	const kind, multi = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE, unix.NLM_F_MULTI
	errVisit := errors.New("visit")
	minus := func(errno unix.Errno) []byte { return native32(uint32(-int32(errno))) }
	one, two := netlinkMessage(kind, multi, 7, []byte("one")), netlinkMessage(kind, multi, 7, []byte("two"))
	stop := netlinkMessage(kind, multi, 7, []byte("stop"))
	end := netlinkMessage(unix.NLMSG_DONE, multi, 7, native32(0))
	tests := map[string]struct {
		datagrams [][]byte
		want      []string
		err       error
		open      bool // the answer is not complete
	}{
		"a dump in two parts":    {[][]byte{slices.Concat(one, two), end}, []string{"one", "two"}, nil, false},
		"a dump not at its end":  {[][]byte{one}, []string{"one"}, nil, true},
		"a single answer":        {[][]byte{netlinkMessage(kind, 0, 7, []byte("x"))}, []string{"x"}, nil, false},
		"an end without a word":  {[][]byte{netlinkMessage(unix.NLMSG_DONE, multi, 7, nil)}, nil, nil, false},
		"refused":                {[][]byte{netlinkMessage(unix.NLMSG_ERROR, 0, 7, minus(unix.EPERM))}, nil, unix.EPERM, false},
		"failed at the end":      {[][]byte{one, netlinkMessage(unix.NLMSG_DONE, multi, 7, minus(unix.ENOMEM))}, []string{"one"}, unix.ENOMEM, false},
		"interrupted":            {[][]byte{netlinkMessage(kind, multi|unix.NLM_F_DUMP_INTR, 7, []byte("one")), end}, nil, errTorn, false},
		"interrupted at the end": {[][]byte{one, netlinkMessage(unix.NLMSG_DONE, multi|unix.NLM_F_DUMP_INTR, 7, native32(0))}, []string{"one"}, errTorn, false},
		"an earlier answer":      {[][]byte{netlinkMessage(kind, multi, 6, []byte("old")), netlinkMessage(unix.NLMSG_DONE, multi, 6, nil), one}, []string{"one"}, nil, true},
		"visit fails":            {[][]byte{slices.Concat(one, stop, two), end}, []string{"one", "stop"}, errVisit, false},
		"visit fails, drained":   {[][]byte{stop, two}, []string{"stop"}, errVisit, true},
		"overrun":                {[][]byte{netlinkMessage(unix.NLMSG_OVERRUN, 0, 7, nil), end}, nil, errMalformed, false},
		"an error without one":   {[][]byte{netlinkMessage(unix.NLMSG_ERROR, 0, 7, nil)}, nil, errMalformed, false},
		"too long":               {[][]byte{one[:len(one)-4]}, nil, errMalformed, false},
		"no length":              {[][]byte{make([]byte, 16)}, nil, errMalformed, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			answer := nftAnswer{sequence: 7, visit: func(message []byte) error {
				got = append(got, string(message))
				if string(message) == "stop" {
					return errVisit
				}
				return nil
			}}
			for _, datagram := range test.datagrams {
				answer.take(datagram)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("by hand (-), handed over (+):\n%s", diff)
			}
			if !errors.Is(answer.err, test.err) || answer.done == test.open {
				t.Errorf("error %v, done %v, want %v and %v", answer.err, answer.done, test.err, !test.open)
			}
		})
	}
}

func FuzzNFTAnswer(f *testing.F) {
	f.Add(netlinkMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_MULTI, 7, []byte("one")))
	f.Add(netlinkMessage(unix.NLMSG_ERROR, 0, 7, native32(0xffffffff)))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		total := 0
		answer := nftAnswer{sequence: 7, visit: func(message []byte) error {
			total += len(message) + unix.NLMSG_HDRLEN
			return nil
		}}
		answer.take(datagram)
		if total > len(datagram) {
			t.Errorf("%d bytes handed over of %d", total, len(datagram))
		}
	})
}
