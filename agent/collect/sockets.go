package collect

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// States of sockets in /proc/net/tcp and its siblings (net/tcp_states.h). A UDP socket that is not connected is "closed".
const (
	socketEstablished = 1
	socketTimeWait    = 6
	socketClosed      = 7
	socketListening   = 10
	socketNewRequest  = 12
)

// hostSocket is a socket of the network namespace. For one that is not connected remote is the wildcard with port 0.
type hostSocket struct {
	protocol      string // "tcp", "udp"
	local, remote netip.AddrPort
	state         uint16
}

// waits reports whether the socket waits for anybody: a listener, or a UDP socket that is not connected.
func (s hostSocket) waits() bool {
	return s.state == socketListening || s.protocol == "udp" && s.state == socketClosed
}

// lives reports whether the socket belongs to a process: what the kernel keeps of a connection that is over, or not yet
// there, does not.
func (s hostSocket) lives() bool {
	switch s.state {
	case socketTimeWait, socketNewRequest:
		return false
	case socketClosed:
		return s.protocol == "udp"
	default:
		return true
	}
}

// readSockets hands the TCP and UDP sockets of both families to visit. It reads files, where sock_diag would make the
// kernel load tcp_diag and udp_diag (request_module in net/core/sock_diag.c).
func readSockets(ctx context.Context, host Host, visit func(hostSocket)) error {
	for _, table := range []struct{ protocol, file string }{
		{"tcp", "tcp"}, {"tcp", "tcp6"}, {"udp", "udp"}, {"udp", "udp6"},
	} {
		if hasNoSockets(host, table.file) {
			continue
		}
		file, err := os.Open(filepath.Join(host.Proc, "net", table.file))
		if errors.Is(err, fs.ErrNotExist) && table.file != table.protocol {
			continue // IPv6 is off
		}
		if err != nil {
			return fmt.Errorf("list the sockets: %w", err)
		}
		if err := errors.Join(parseSockets(ctx, file, table.protocol, visit), file.Close()); err != nil {
			return fmt.Errorf("list the sockets of %s: %w", table.file, err)
		}
	}
	return nil
}

// hasNoSockets reports whether the kernel's own count of the sockets of a protocol in this network namespace, those of
// connections that are over left out, is certainly zero (sockstat_seq_show in net/ipv4/proc.c). For each list of TCP sockets
// the kernel walks its whole hash table, which takes some milliseconds on a big machine.
func hasNoSockets(host Host, file string) bool {
	counts, name := filepath.Join(host.Proc, "net/sockstat"), strings.ToUpper(file)
	if strings.HasSuffix(file, "6") {
		counts += "6"
	}
	text, err := os.ReadFile(counts) //nolint:gosec // a file of the kernel's
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == name+":" && fields[1] == "inuse" {
			return fields[2] == "0"
		}
	}
	return false
}

// parseSockets takes /proc/net/tcp, tcp6, udp or udp6: "sl local_address remote_address st …", addresses as the bytes
// are in memory, word by word (tcp4_seq_show in net/ipv4/tcp_ipv4.c, ip6_dgram_sock_seq_show in net/ipv6/datagram.c).
func parseSockets(ctx context.Context, r io.Reader, protocol string, visit func(hostSocket)) error {
	lines := bufio.NewReaderSize(r, 1<<16)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0 && number > 1:
			return nil
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		case err != nil:
		case number == 1:
			err = expectPrefix(line, "  sl  local_address")
			if err != nil {
				err = expectPrefix(line, "   sl  local_address")
			}
		default:
			err = visitSocket(line[:len(line)-1], protocol, visit)
		}
		if err == nil && number%linesPerCheck == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

func visitSocket(line []byte, protocol string, visit func(hostSocket)) error {
	_, rest := field(line)
	local, rest := field(rest)
	remote, rest := field(rest)
	state, _ := field(rest)
	one := hostSocket{protocol: protocol}
	var okLocal, okRemote, okState bool
	one.local, okLocal = parseNativeAddrPort(local)
	one.remote, okRemote = parseNativeAddrPort(remote)
	if len(state) == 2 {
		one.state, okState = parseHex16(append([]byte("00"), state...))
	}
	if !okLocal || !okRemote || !okState {
		return fmt.Errorf("socket %.200q is not understood", line)
	}
	visit(one)
	return nil
}

// parseNativeAddrPort reads "0100007F:1F90" or 32 digits of IPv6 and a port. A mapped IPv4 address becomes a plain one.
func parseNativeAddrPort(text []byte) (netip.AddrPort, bool) {
	if len(text) != 8+5 && len(text) != 32+5 || text[len(text)-5] != ':' {
		return netip.AddrPort{}, false
	}
	port, ok := parseHex16(text[len(text)-4:])
	var raw [16]byte
	digits := text[:len(text)-5]
	for i := 0; i < len(digits); i += 8 {
		word, okWord := parseHex32(digits[i : i+8])
		binary.NativeEndian.PutUint32(raw[i/2:], word)
		ok = ok && okWord
	}
	if len(digits) == 8 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[:4])), port), ok
	}
	return netip.AddrPortFrom(netip.AddrFrom16(raw).Unmap(), port), ok
}
