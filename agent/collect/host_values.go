package collect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxReserved bounds the list of reserved ports, in bytes.
const maxReserved = 1024

// readProcFileWhole reads a file of the proc file system.
func readProcFileWhole(path string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // below a root that the caller chose
	return string(text), err
}

// readNumber reads a parameter that is a number; 0 where there is no such parameter.
func readNumber(host Host, path string) (uint64, error) {
	text, err := readValue(host.sysctlPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// isIPv6Off reports whether the node has no IPv6: no module or ipv6.disable=1, both of which leave no /proc/net/if_inet6, or
// no address anywhere since it is disabled on all links.
func isIPv6Off(host Host) (bool, error) {
	addresses, err := readProcFileWhole(filepath.Join(host.Proc, "net/if_inet6"))
	if errors.Is(err, fs.ErrNotExist) {
		if found, err := exists(filepath.Join(host.Proc, "net")); err != nil || !found {
			return false, errors.Join(errors.New("there is no net below the proc file system"), err)
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	disabled, err := readNumber(host, "net/ipv6/conf/all/disable_ipv6")
	return err == nil && disabled == 1 && strings.TrimSpace(addresses) == "", err
}

// readPorts fills in the range of local ports, and those that are taken out of it.
func readPorts(host Host, content *offrampv1.HostFacts) error {
	text, err := readValue(host.sysctlPath("net/ipv4/ip_local_port_range"))
	if err != nil {
		return err
	}
	if fields := strings.Fields(text); len(fields) == 2 {
		from, err := strconv.ParseUint(fields[0], 10, 16)
		to, err2 := strconv.ParseUint(fields[1], 10, 16)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		content.LocalPortMin, content.LocalPortMax = uint32(from), uint32(to)
	}
	reserved, err := readValue(host.sysctlPath("net/ipv4/ip_local_reserved_ports"))
	content.ReservedPorts = cut(reserved, maxReserved)
	return err
}
