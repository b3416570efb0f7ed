package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/sock_diag.h and linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	sockDestroy      = 21
	diagRequestSize  = 56 // struct inet_diag_req_v2
	diagAnswerSize   = 72 // struct inet_diag_msg
	diagIDOffset     = 8  // of struct inet_diag_sockid in the request
	diagIDSize       = 48
	diagAnswerID     = 4
)

// diagRequest is a struct inet_diag_req_v2.
type diagRequest [diagRequestSize]byte

// Len implements nl.NetlinkRequestData.
func (r *diagRequest) Len() int { return diagRequestSize }

// Serialize implements nl.NetlinkRequestData.
func (r *diagRequest) Serialize() []byte { return r[:] }

func newDiagRequest(family, protocol uint8, states uint32) *diagRequest {
	var request diagRequest
	request[0], request[1] = family, protocol
	binary.NativeEndian.PutUint32(request[4:], states)
	return &request
}

// closeSockets closes the connected TCP and UDP sockets of the host whose own address is one of these, and says how many:
// their programs get an error at once and connect again, instead of waiting for an answer that cannot come.
//
// The kernel loads its socket diagnosis for it. Without CONFIG_INET_DIAG_DESTROY it says EOPNOTSUPP.
func closeSockets(addresses map[netip.Addr]bool) (closed int, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			ids, listErr := diagnose(family, protocol, addresses)
			err = errors.Join(err, listErr)
			for _, id := range ids {
				destroyErr := destroySocket(family, protocol, id)
				switch {
				case destroyErr == nil:
					closed++
				case !errors.Is(destroyErr, unix.ENOENT):
					err = errors.Join(err, fmt.Errorf("close a socket: %w", destroyErr))
				}
			}
		}
	}
	return closed, err
}

// diagnose lists the sockets of one family and protocol with one of these addresses as their own. An id has the cookie
// of its socket: another one that has taken its place since is not meant.
func diagnose(family, protocol uint8, addresses map[netip.Addr]bool) ([][]byte, error) {
	const states = 1<<unix.BPF_TCP_ESTABLISHED | 1<<unix.BPF_TCP_SYN_SENT | 1<<unix.BPF_TCP_SYN_RECV | 1<<unix.BPF_TCP_CLOSE_WAIT
	request := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
	request.AddData(newDiagRequest(family, protocol, states))
	answers, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // the kernel has no such sockets
	}
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	var ids [][]byte
	for _, answer := range answers {
		if len(answer) >= diagAnswerSize && addresses[diagSource(family, answer)] {
			ids = append(ids, answer[diagAnswerID:diagAnswerID+diagIDSize])
		}
	}
	return ids, nil
}

func diagSource(family uint8, answer []byte) netip.Addr {
	const source = diagAnswerID + 4
	size := 16
	if family == unix.AF_INET {
		size = 4
	}
	address, _ := netip.AddrFromSlice(answer[source : source+size])
	return address.Unmap()
}

func destroySocket(family, protocol uint8, id []byte) error {
	request := nl.NewNetlinkRequest(sockDestroy, unix.NLM_F_ACK)
	body := newDiagRequest(family, protocol, ^uint32(0))
	copy(body[diagIDOffset:], id)
	request.AddData(body)
	_, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}
