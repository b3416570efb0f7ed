package cleanup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
)

// establishedThrough counts the established connections of these virtual servers.
func establishedThrough(proc string, servers map[ipvsKey]bool) (uint64, error) {
	file, err := os.Open(proc + "/net/ip_vs_conn") //nolint:gosec // where proc is, is configured //nolint:gosec // proc is an injected root
	if err != nil {
		return 0, fmt.Errorf("list the connections through IPVS: %w", err)
	}
	count, err := countConnections(file, servers)
	return count, errors.Join(err, file.Close())
}

// countConnections takes the text of ip_vs_conn_seq_show (net/netfilter/ipvs/ip_vs_conn.c): "Pro FromIP FPrt ToIP TPrt
// DestIP DPrt State Expires", numbers in hexadecimal. UDP has no state that tells an end: it is not counted.
func countConnections(text io.Reader, servers map[ipvsKey]bool) (uint64, error) {
	var count uint64
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[7] != "ESTABLISHED" {
			continue
		}
		protocol, known := ipvsProtocol(fields[0])
		address, err := parseHexConnection(fields[3], fields[4])
		if err != nil {
			return 0, err
		}
		if known && servers[ipvsKey{protocol, address}] {
			count++
		}
	}
	return count, lines.Err()
}

func parseHexConnection(host, port string) (netip.AddrPort, error) {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return parseHexAddress(host + ":" + port)
}
