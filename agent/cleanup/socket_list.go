package cleanup

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
)

// hostSocket is a connected socket of the host's own network namespace.
type hostSocket struct {
	udp           bool
	local, remote netip.AddrPort
}

// States of a socket as /proc/net/tcp prints them (include/net/tcp_states.h): those in which it still has something to say
// to the other end. What merely waits to be forgotten is left out, and so are listeners: nothing is connected to them.
const openStates = "01 02 03 08" // ESTABLISHED, SYN_SENT, SYN_RECV, CLOSE_WAIT

// connectedSockets hands over every TCP and UDP socket that is connected, as /proc/net lists them: unlike a socket
// diagnosis that loads no module. Addresses of IPv4 are IPv4 addresses in all of them.
func connectedSockets(proc string, visit func(hostSocket)) error {
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		file, err := os.Open(proc + "/net/" + name) //nolint:gosec // below a root or folder that the operator names
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(name, "6") {
			continue // the kernel has no IPv6
		}
		if err != nil {
			return fmt.Errorf("list the sockets: %w", err)
		}
		err = parseSockets(file, strings.HasPrefix(name, "udp"), visit)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("list the sockets of %s: %w", name, err)
		}
	}
	return nil
}

// parseSockets takes the text of tcp4_seq_show and its like: "sl local_address rem_address st …" with numbers in
// hexadecimal.
func parseSockets(text io.Reader, udp bool, visit func(hostSocket)) error {
	lines := bufio.NewScanner(text)
	for first := true; lines.Scan(); first = false {
		fields := strings.Fields(lines.Text())
		if first || len(fields) < 4 || !strings.Contains(openStates, fields[3]) {
			continue
		}
		local, err := parseSocketAddress(fields[1])
		if err != nil {
			return err
		}
		remote, err := parseSocketAddress(fields[2])
		if err != nil {
			return err
		}
		visit(hostSocket{udp, local, remote})
	}
	return lines.Err()
}

// parseSocketAddress takes "0100007F:0016": the address as words in the machine's byte order.
func parseSocketAddress(text string) (netip.AddrPort, error) {
	host, port, found := strings.Cut(text, ":")
	words, err := hex.DecodeString(host)
	number, portErr := hex.DecodeString(port)
	if err := errors.Join(err, portErr); err != nil || !found || len(words)%4 != 0 || len(number) != 2 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address of a socket", text)
	}
	for i := 0; i < len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	address, ok := netip.AddrFromSlice(words)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no address of a socket", text)
	}
	return netip.AddrPortFrom(address.Unmap(), binary.BigEndian.Uint16(number)), nil
}

// socketsFrom counts the connected sockets whose own address is one of these.
func socketsFrom(proc string, addresses map[netip.Addr]bool) (uint64, error) {
	var count uint64
	err := connectedSockets(proc, func(s hostSocket) {
		if addresses[s.local.Addr()] {
			count++
		}
	})
	return count, err
}
