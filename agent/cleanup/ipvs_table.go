package cleanup

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"offramp.dev/offramp/agent/inventory"
)

// ipvsTable is what stands in the IPVS table right now: the real servers of each virtual server, as text to compare.
// Firewall marks and protocols that kube-proxy does not use are left out.
type ipvsTable map[ipvsKey][]string

// readIPVSTable reads the table twice and puts both together: a reading is not of one moment, and skips an entry where one
// before it is removed meanwhile. What the file lacks because another network namespace has virtual servers is asked for over
// generic netlink: see ipvsReader in agent/collect. What is in none of them is gone.
func readIPVSTable(proc string) (ipvsTable, error) {
	table := ipvsTable{}
	for range 2 {
		reading, err := readIPVSTableOnce(proc)
		if err != nil {
			return nil, err
		}
		maps.Copy(table, reading)
	}
	handle, err := openIPVS(proc)
	if err != nil {
		return nil, err
	}
	defer handle.close()
	return table, table.addLost(handle)
}

// addLost adds the virtual servers of the kernel's own list that are not in the table.
func (t ipvsTable) addLost(handle *ipvsHandle) error {
	list, err := handle.services()
	if err != nil {
		return err
	}
	for key := range list {
		if _, found := t[key]; found {
			continue
		}
		if t[key], err = handle.reals(key); err != nil {
			return err
		}
	}
	return nil
}

func readIPVSTableOnce(proc string) (ipvsTable, error) {
	file, err := os.Open(proc + "/net/ip_vs") //nolint:gosec // where proc is, is configured
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoIPVS
	}
	if err != nil {
		return nil, fmt.Errorf("read the IPVS table: %w", err)
	}
	table, err := parseIPVSTable(file)
	return table, errors.Join(err, file.Close())
}

// parseIPVSTable takes the text of ip_vs_info_seq_show (net/netfilter/ipvs/ip_vs_ctl.c): numbers in hexadecimal, real
// servers after "  -> ".
func parseIPVSTable(text io.Reader) (ipvsTable, error) {
	table := ipvsTable{}
	var key ipvsKey
	known := false
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		var err error
		switch {
		case len(fields) < 2 || fields[0] == "IP" || fields[0] == "Prot" || fields[1] == "RemoteAddress:Port":
		case fields[0] == "->":
			err = table.addReal(key, known, fields)
		default:
			key, known, err = table.addVirtual(fields)
		}
		if err != nil {
			return nil, err
		}
	}
	return table, lines.Err()
}

func (t ipvsTable) addVirtual(fields []string) (ipvsKey, bool, error) {
	protocol, known := ipvsProtocol(fields[0])
	if !known {
		return ipvsKey{}, false, nil
	}
	address, err := parseHexAddress(fields[1])
	if err != nil {
		return ipvsKey{}, false, err
	}
	key := ipvsKey{protocol, address}
	t[key] = []string{}
	return key, true, nil
}

func (t ipvsTable) addReal(key ipvsKey, known bool, fields []string) error {
	if !known {
		return nil
	}
	if len(fields) < 4 {
		return fmt.Errorf("a line of the IPVS table is not understood: %q", fields)
	}
	address, err := parseHexAddress(fields[1])
	if err != nil {
		return err
	}
	t[key] = append(t[key], realServerText(address, fields[2]))
	return nil
}

// parseHexAddress takes "0A600001:0050" or "[fd00:0000:…:0001]:0050".
func parseHexAddress(text string) (netip.AddrPort, error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address of the IPVS table", text)
	}
	port, err := strconv.ParseUint(text[colon+1:], 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address of the IPVS table: %w", text, err)
	}
	address, err := parseHexHost(text[:colon])
	return netip.AddrPortFrom(address, uint16(port)), err
}

func parseHexHost(text string) (netip.Addr, error) {
	if inner, found := strings.CutPrefix(text, "["); found {
		return netip.ParseAddr(strings.TrimSuffix(inner, "]"))
	}
	raw, err := hex.DecodeString(text)
	address, ok := netip.AddrFromSlice(raw)
	if err != nil || !ok || !address.Is4() {
		return netip.Addr{}, fmt.Errorf("%q is no address of the IPVS table", text)
	}
	return address, nil
}

func realServerText(address netip.AddrPort, forward string) string {
	return address.String() + " " + forward
}

// unchanged reports whether a virtual server still has the real servers that it had when its owner was concluded. Their
// weights may move: kube-proxy sets them to 0 when it ends an endpoint gracefully.
func (t ipvsTable) unchanged(server *inventory.VirtualServer, key ipvsKey) bool {
	want := make([]string, 0, len(server.RealServers))
	for _, real := range server.RealServers {
		want = append(want, realServerText(real.Address, real.Forward))
	}
	now := slices.Clone(t[key])
	slices.Sort(want)
	slices.Sort(now)
	return slices.Equal(want, now)
}
