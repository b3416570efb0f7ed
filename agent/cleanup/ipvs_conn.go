package cleanup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// establishedThrough counts the established connections of these virtual servers, and the flows of UDP that still have packets.
func establishedThrough(proc string, servers map[ipvsKey]bool, flows *udpFlows) (uint64, error) {
	file, err := os.Open(proc + "/net/ip_vs_conn") //nolint:gosec // where proc is, is configured //nolint:gosec // proc is an injected root
	if err != nil {
		return 0, fmt.Errorf("list the connections through IPVS: %w", err)
	}
	count, err := countConnections(file, servers, flows)
	return count, errors.Join(err, file.Close())
}

// countConnections takes the text of ip_vs_conn_seq_show (net/netfilter/ipvs/ip_vs_conn.c): "Pro FromIP FPrt ToIP TPrt
// DestIP DPrt State Expires", addresses and ports in hexadecimal, what is left of its time in seconds.
func countConnections(text io.Reader, servers map[ipvsKey]bool, flows *udpFlows) (uint64, error) {
	var count uint64
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 9 || fields[7] != "ESTABLISHED" && fields[0] != "UDP" {
			continue
		}
		protocol, known := ipvsProtocol(fields[0])
		address, err := parseHexConnection(fields[3], fields[4])
		if err != nil {
			return 0, err
		}
		if !known || !servers[ipvsKey{protocol, address}] {
			continue
		}
		if live, err := isLive(fields, flows); err != nil {
			return 0, err
		} else if live {
			count++
		}
	}
	return count, lines.Err()
}

func isLive(fields []string, flows *udpFlows) (bool, error) {
	if fields[0] != "UDP" {
		return true, nil
	}
	if fields[2] == "0000" { // the template of a Service with session affinity: no packet has that port
		return false, nil
	}
	seconds, err := strconv.ParseUint(fields[8], 10, 32)
	if err != nil {
		return false, fmt.Errorf("the time that a connection through IPVS has left: %w", err)
	}
	return flows.live(strings.Join(fields[:7], " "), time.Duration(seconds)*time.Second), nil
}

func parseHexConnection(host, port string) (netip.AddrPort, error) {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return parseHexAddress(host + ":" + port)
}
