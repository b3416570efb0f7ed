package collect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/netip"
)

// fwmProtocol stands for a virtual server that is chosen by firewall mark.
const fwmProtocol = "FWM"

// virtualServer is one entry of the IPVS table.
type virtualServer struct {
	protocol  string         // "TCP", "UDP", "SCTP", "FWM"; "IP_n" for a protocol that kube-proxy never uses
	address   netip.AddrPort // zero for FWM
	fwmark    uint32
	scheduler string
	// realServers counts all of them, others those whose forwarding method is not masquerade.
	realServers, others uint32
}

// ipvsTable is one reading of /proc/net/ip_vs.
type ipvsTable struct {
	servers     []virtualServer
	realServers uint64
	weightZero  uint64
	persistent  uint64 // virtual servers
	active      uint64 // connections
	inactive    uint64
	// content digests all of it but the connection counters, in the kernel's order.
	content uint64
}

// ipvsParser takes /proc/net/ip_vs line by line. The format is that of ip_vs_info_seq_show in the kernel's
// net/netfilter/ipvs/ip_vs_ctl.c: addresses in hexadecimal, three lines of header, real servers indented by "  ->".
type ipvsParser struct {
	table ipvsTable
	hash  maphash.Hash
	names map[string]string
	// visit, where it is set, is told of each line, with the virtual server that it is or belongs to.
	visit ipvsVisitor
}

// parseIPVS reads a whole IPVS table. A line that is cut short or not understood is an error: a table that was read by
// half must not pass for a small one. seed makes the content digests of two readings comparable.
func parseIPVS(r io.Reader, seed maphash.Seed) (*ipvsTable, error) {
	return parseIPVSLines(r, seed, nil)
}

// parseIPVSLines is parseIPVS that hands each line to visit too, unless that is nil.
func parseIPVSLines(r io.Reader, seed maphash.Seed, visit ipvsVisitor) (*ipvsTable, error) {
	p := &ipvsParser{names: map[string]string{}, visit: visit}
	p.hash.SetSeed(seed)
	if err := p.read(r); err != nil {
		return nil, err
	}
	p.table.content = p.hash.Sum64()
	return &p.table, nil
}

// read takes lines until the end, which must be that of a line.
func (p *ipvsParser) read(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 1<<16)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0 && number > ipvsHeaderLines:
			return nil
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		case err == nil:
			err = p.line(number, line[:len(line)-1])
		}
		if err != nil {
			return fmt.Errorf("line %d of the IPVS table: %w", number, err)
		}
	}
}

const (
	ipvsHeaderLines  = 3
	ipvsHeaderServer = "Prot LocalAddress:Port Scheduler Flags"
	ipvsHeaderReal   = "  -> RemoteAddress:Port Forward Weight ActiveConn InActConn"
)

func (p *ipvsParser) line(number int, line []byte) error {
	switch {
	case number == 1:
		return expectPrefix(line, "IP Virtual Server version ")
	case number == 2:
		return expectPrefix(line, ipvsHeaderServer)
	case number == ipvsHeaderLines:
		return expectPrefix(line, ipvsHeaderReal)
	case bytes.HasPrefix(line, []byte("  -> ")):
		return p.realServer(line)
	default:
		return p.virtualServer(line)
	}
}

func expectPrefix(line []byte, prefix string) error {
	if !bytes.HasPrefix(line, []byte(prefix)) {
		return fmt.Errorf("header %q is not %q", line, prefix)
	}
	return nil
}

func (p *ipvsParser) virtualServer(line []byte) error {
	p.digest(line)
	protocol, rest := field(line)
	where, rest := field(rest)
	scheduler, flags := field(rest)
	if len(scheduler) == 0 {
		return fmt.Errorf("virtual server %q has no scheduler", line)
	}
	server := virtualServer{protocol: p.name(protocol), scheduler: p.name(scheduler)}
	var ok bool
	if server.protocol == fwmProtocol {
		server.fwmark, ok = parseHex32(where)
	} else {
		server.address, ok = parseHexAddrPort(where)
	}
	if !ok {
		return fmt.Errorf("virtual server %q: cannot read %q", line, where)
	}
	p.table.servers = append(p.table.servers, server)
	if isPersistent(flags) {
		p.table.persistent++
	}
	p.tell(line)
	return nil
}

// isPersistent looks for the word among the flags: "ops", "persistent TIMEOUT NETMASK".
func isPersistent(flags []byte) bool {
	for len(flags) > 0 {
		var word []byte
		if word, flags = field(flags); string(word) == "persistent" {
			return true
		}
	}
	return false
}

func (p *ipvsParser) realServer(line []byte) error {
	_, rest := field(line)
	where, rest := field(rest)
	forward, rest := field(rest)
	weight, rest := field(rest)
	p.digest(line[:len(line)-len(rest)])
	active, rest := field(rest)
	inactive, rest := field(rest)
	beyond, _ := field(rest)
	w, okWeight := parseDecimal(weight)
	a, okActive := parseDecimal(active)
	i, okInactive := parseDecimal(inactive)
	_, okWhere := parseHexAddrPort(where)
	if !okWeight || !okActive || !okInactive || !okWhere || len(beyond) > 0 || len(p.table.servers) == 0 {
		return fmt.Errorf("real server %q is not understood", line)
	}
	p.count(string(forward) == "Masq", w, a, i)
	p.tell(line)
	return nil
}

func (p *ipvsParser) tell(line []byte) {
	if p.visit != nil {
		p.visit(&p.table.servers[len(p.table.servers)-1], line)
	}
}

func (p *ipvsParser) count(masquerading bool, weight, active, inactive uint64) {
	server := &p.table.servers[len(p.table.servers)-1]
	server.realServers++
	if !masquerading {
		server.others++
	}
	if weight == 0 {
		p.table.weightZero++
	}
	p.table.realServers++
	p.table.active += active
	p.table.inactive += inactive
}

func (p *ipvsParser) digest(part []byte) {
	_, _ = p.hash.Write(part)
	_ = p.hash.WriteByte('\n')
}

// name keeps one copy of each protocol and scheduler name, so that 10,000 lines do not make 20,000 strings.
func (p *ipvsParser) name(text []byte) string {
	if known, ok := p.names[string(text)]; ok {
		return known
	}
	name := printable(text)
	p.names[string(text)] = name
	return name
}
