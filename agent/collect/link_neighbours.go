package collect

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// sizeofNdmsg is sizeof(struct ndmsg) of linux/neighbour.h: family, padding, index, state, flags, type.
const sizeofNdmsg = 12

// answering are the states of a neighbour that answered, or that somebody wrote down for good.
const answering = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

// neighbour is one entry of the kernel's neighbour tables.
type neighbour struct {
	address netip.Addr
	link    int // index
	state   uint16
}

// readClaimed returns the addresses among mine that a neighbour on a link other than mine answers for, sorted: another
// machine has them. At most maxSamples.
func readClaimed(ctx context.Context, s *socket, link int, mine map[netip.Addr]struct{}) ([]string, error) {
	claimed, _, err := repeat(ctx, func(ctx context.Context) (map[netip.Addr]struct{}, error) {
		claimed := map[netip.Addr]struct{}{}
		err := dumpNeighbours(ctx, s, func(one neighbour) {
			if _, isMine := mine[one.address]; isMine && one.link != link && one.state&answering != 0 {
				claimed[one.address] = struct{}{}
			}
		})
		return claimed, err
	})
	if err != nil {
		return nil, err
	}
	var list []string
	for _, address := range slices.SortedFunc(maps.Keys(claimed), netip.Addr.Compare) {
		list = append(list, address.String())
	}
	return list[:min(len(list), maxSamples)], nil
}

func dumpNeighbours(ctx context.Context, s *socket, visit func(neighbour)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		request.AddData(&netlink.Ndmsg{Family: family})
		err := s.dump(ctx, request, func(message []byte) error {
			one, err := parseNeighbour(message)
			if err == nil && one.address.IsValid() {
				visit(one)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list the neighbours: %w", err)
		}
	}
	return nil
}

// parseNeighbour takes an RTM_NEWNEIGH message. Entries of a bridge have no IP address.
func parseNeighbour(message []byte) (one neighbour, err error) {
	if len(message) < sizeofNdmsg {
		return one, errMalformed
	}
	one.link = int(int32(binary.NativeEndian.Uint32(message[4:]))) //nolint:gosec // the kernel's own type
	one.state = binary.NativeEndian.Uint16(message[8:])
	err = eachAttribute(message[sizeofNdmsg:], func(kind uint16, value []byte) error {
		if kind == netlink.NDA_DST {
			one.address, _ = netip.AddrFromSlice(value)
		}
		return nil
	})
	return one, err
}
