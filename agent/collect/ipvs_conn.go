package collect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// serverKey names a virtual server that is not chosen by firewall mark.
type serverKey struct {
	protocol string
	address  netip.AddrPort
}

func (s virtualServer) key() serverKey { return serverKey{s.protocol, s.address} }

// connection is one entry of the IPVS connection table.
type connection struct {
	server serverKey
	client netip.AddrPort
	// established: TCP and SCTP in that state, and every UDP one.
	established bool
	// template: no connection, but the memory of which client goes to which real server (session affinity).
	template bool
}

const connectionsHeader = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires"

// linesPerCheck is after how many lines the deadline is looked at.
const linesPerCheck = 1024

// readConnections hands every connection of IPVS to visit. The kernel finds its place in the table by counting, so that an
// entry can be missed or come twice while others come and go: good for counts of what moves anyway.
func readConnections(ctx context.Context, host Host, visit func(connection)) error {
	file, err := os.Open(filepath.Join(host.Proc, "net/ip_vs_conn"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the IPVS connections: %w", err)
	}
	if err != nil {
		return err
	}
	return errors.Join(parseConnections(ctx, file, visit), file.Close())
}

// parseConnections takes /proc/net/ip_vs_conn line by line. The format is that of ip_vs_conn_seq_show in the kernel's
// net/netfilter/ipvs/ip_vs_conn.c.
func parseConnections(ctx context.Context, r io.Reader, visit func(connection)) error {
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
			err = expectPrefix(line, connectionsHeader)
		default:
			err = visitConnection(line[:len(line)-1], visit)
		}
		if err == nil && number%linesPerCheck == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("line %d of the IPVS connections: %w", number, err)
		}
	}
}

func visitConnection(line []byte, visit func(connection)) error {
	one, ok := parseConnection(line)
	if !ok {
		return fmt.Errorf("connection %.200q is not understood", line)
	}
	visit(one)
	return nil
}

func parseConnection(line []byte) (one connection, ok bool) {
	var words [9][]byte
	for i := range words {
		words[i], line = field(line)
	}
	client, okClient := parseEndpoint(words[1], words[2])
	server, okServer := parseEndpoint(words[3], words[4])
	_, okReal := parseEndpoint(words[5], words[6])
	_, okExpires := parseDecimal(words[8])
	protocol := protocolWord(words[0])
	one = connection{
		server: serverKey{protocol, server}, client: client,
		// A template stands for all ports of a client (ip_vs_sched_persist in ip_vs_core.c).
		template:    client.Port() == 0,
		established: isEstablished(protocol, words[7]),
	}
	return one, okClient && okServer && okReal && okExpires && len(words[0]) > 0
}

func parseEndpoint(address, port []byte) (netip.AddrPort, bool) {
	ip, okAddress := parseHexAddr(address)
	number, okPort := parseHex16(port)
	return netip.AddrPortFrom(ip, number), okAddress && okPort
}

// protocolWord is the protocol's name without a new string for each line; empty for one that kube-proxy never uses.
func protocolWord(word []byte) string {
	switch string(word) {
	case "TCP":
		return "TCP"
	case "UDP":
		return "UDP"
	case "SCTP":
		return "SCTP"
	default:
		return ""
	}
}

// isEstablished takes the states' names of ip_vs_proto_tcp.c, _udp.c and _sctp.c: UDP has one alone.
func isEstablished(protocol string, state []byte) bool {
	switch protocol {
	case "TCP", "SCTP":
		return string(state) == "ESTABLISHED"
	case "UDP":
		return string(state) == "UDP"
	default:
		return false
	}
}
