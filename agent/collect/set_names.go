package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// setNames are ipsets by index, which is how rules know them. An index keeps its name as long as a rule holds it: renaming
// a set that is in use is refused, and swapping two swaps what is in them (net/netfilter/ipset/ip_set_core.c).
type setNames map[uint16]kubeproxy.Set

const (
	// indexProtocol is the first version of ipset's protocol that tells indices in a list (Linux 4.20); older kernels refuse it.
	indexProtocol = 7
	// ipsetAttrIndex is IPSET_ATTR_INDEX of linux/netfilter/ipset/ip_set.h.
	ipsetAttrIndex = 11
	// ipsetErrProtocol is IPSET_ERR_PROTOCOL, which is not an errno of the system.
	ipsetErrProtocol = unix.Errno(4097)
)

// readSetNames asks for the index of every set.
func readSetNames(ctx context.Context, mods *modules) (setNames, error) {
	s, err := openIPSet(mods)
	if err != nil {
		return nil, err
	}
	defer s.close()
	names, err := listSetNames(ctx, s)
	if isOldProtocol(err) {
		names, err = askSetNames(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the names of the ipsets that rules hold: %w", err)
	}
	return names, nil
}

func isOldProtocol(err error) bool {
	var number nl.IPSetError
	return errors.Is(err, ipsetErrProtocol) || errors.As(err, &number) && uintptr(number) == uintptr(ipsetErrProtocol)
}

// listSetNames reads names and indices from one list of headers.
func listSetNames(ctx context.Context, s *socket) (setNames, error) {
	names := setNames{}
	err := s.dump(ctx, setNamesRequest(), func(message []byte) error {
		header, _, err := parseIPSetMessage(message, nil)
		if err != nil {
			return err
		}
		index, err := parseSetIndex(message)
		names[index] = header.set()
		return err
	})
	return names, err
}

func setNamesRequest() *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, []byte{indexProtocol}))
	flags := binary.BigEndian.AppendUint32(nil, ipsetListHeader)
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|int(nl.NLA_F_NET_BYTEORDER), flags))
	return request
}

func parseSetIndex(message []byte) (uint16, error) {
	var index uint16
	found := false
	err := eachAttribute(message[nl.SizeofNfgenmsg:], func(kind uint16, value []byte) error {
		if kind == ipsetAttrIndex && len(value) == 2 {
			index, found = binary.BigEndian.Uint16(value), true
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("a set without its index: %w", errMalformed)
	}
	return index, err
}

// Of include/uapi/linux/netfilter/ipset/ip_set.h: struct ip_set_req_get_set is an operation, a version and a union of
// name and index.
const (
	sockoptIPSet     = 83 // SO_IP_SET
	getSetByName     = 6  // IP_SET_OP_GET_BYNAME
	getSetSize       = 8 + maxSetName
	maxSetName       = 32 // IPSET_MAXNAMELEN
	oldIPSetProtocol = 6
)

// askSetNames asks for each set by its name, as iptables does, on kernels whose lists do not tell.
func askSetNames(ctx context.Context, s *socket) (setNames, error) {
	headers, err := dumpIPSetHeaders(ctx, s)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for the options of ip_set: %w", err)
	}
	names := setNames{}
	for _, header := range headers {
		index, askErr := askSetIndex(fd, header.name)
		if err = errors.Join(askErr, ctx.Err()); err != nil {
			break
		}
		if index != noSet { // the set is gone meanwhile
			names[index] = header.set()
		}
	}
	return names, errors.Join(err, unix.Close(fd))
}

func askSetIndex(fd int, name string) (uint16, error) {
	buffer := make([]byte, getSetSize)
	binary.NativeEndian.PutUint32(buffer, getSetByName)
	binary.NativeEndian.PutUint32(buffer[4:], oldIPSetProtocol)
	copy(buffer[8:getSetSize-1], name)
	size := uint32(len(buffer)) //nolint:gosec // forty bytes
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, sockoptIPSet,
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // as the system call wants it
	if errno != 0 {
		return 0, errno
	}
	return binary.NativeEndian.Uint16(buffer[8:]), nil
}
