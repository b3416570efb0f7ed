package collect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket options of linux/netfilter_ipv4/ip_tables.h; those of IPv6 have the same numbers.
const (
	legacyGetInfo    = 64 // IPT_SO_GET_INFO
	legacyGetEntries = 65 // IPT_SO_GET_ENTRIES

	// legacyInfoSize is sizeof(struct ipt_getinfo): a name, then valid_hooks, hook_entry, underflow, num_entries, size.
	legacyInfoSize = tableNameSize + 4*(1+legacyHooks+legacyHooks+1+1)

	// maxLegacyTable bounds what is read of one table, in bytes: ten times the rules of 5,000 Services.
	maxLegacyTable = 128 << 20
)

// legacySocket asks for tables of iptables-legacy. Asking for one that is not there creates it: callers look into
// /proc/net/ip_tables_names first.
type legacySocket struct {
	fd    int
	level int
}

// openLegacy opens a socket whose options lead to the tables. Any will do, so it is one that needs no CAP_NET_RAW; the
// options need CAP_NET_ADMIN.
func openLegacy(layout *legacyLayout) (*legacySocket, error) {
	fd, err := unix.Socket(layout.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for iptables-legacy: %w", err)
	}
	return &legacySocket{fd, layout.level}, nil
}

func (s *legacySocket) close() error { return unix.Close(s.fd) }

// table returns a table as of one moment. The kernel refuses when the size changed since it was asked for; whether hooks
// still are where they were is looked at afterwards. Either is errTorn.
func (s *legacySocket) table(name string) (*legacyInfo, []byte, error) {
	info, err := s.info(name)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the size of table %s of iptables-legacy: %w", printable([]byte(name)), err)
	}
	if info.size > maxLegacyTable {
		return nil, nil, fmt.Errorf("table %s of iptables-legacy has %d bytes, more than %d", printable([]byte(name)), info.size, maxLegacyTable)
	}
	answer := make([]byte, entriesHeader+int(info.size))
	copy(answer[:tableNameSize-1], name)
	binary.NativeEndian.PutUint32(answer[tableNameSize:], info.size)
	err = s.get(legacyGetEntries, answer)
	if errors.Is(err, unix.EAGAIN) {
		return nil, nil, errTorn
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read table %s of iptables-legacy: %w", printable([]byte(name)), err)
	}
	if after, err := s.info(name); err != nil || *after != *info {
		return nil, nil, errTorn
	}
	return info, answer[entriesHeader:], nil
}

func (s *legacySocket) info(name string) (*legacyInfo, error) {
	answer := make([]byte, legacyInfoSize)
	copy(answer[:tableNameSize-1], name)
	if err := s.get(legacyGetInfo, answer); err != nil {
		return nil, err
	}
	return parseLegacyInfo(answer), nil
}

func parseLegacyInfo(answer []byte) *legacyInfo {
	number := func(i int) uint32 { return binary.NativeEndian.Uint32(answer[tableNameSize+4*i:]) }
	info := &legacyInfo{validHooks: number(0), entries: number(1 + 2*legacyHooks), size: number(2 + 2*legacyHooks)}
	for hook := range legacyHooks {
		info.hookEntry[hook] = number(1 + hook)
		info.underflow[hook] = number(1 + legacyHooks + hook)
	}
	return info
}

// get calls getsockopt with a buffer that is both question and answer, for which x/sys has no function.
func (s *legacySocket) get(option uintptr, buffer []byte) error {
	size := uint32(len(buffer)) //nolint:gosec // at most maxLegacyTable and a header
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(s.level), option,
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // as the system call wants it
	if errno != 0 {
		return errno
	}
	if int(size) != len(buffer) {
		return fmt.Errorf("the kernel answered with %d bytes instead of %d", size, len(buffer))
	}
	return nil
}
