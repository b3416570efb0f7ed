package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"offramp.dev/offramp/agent/inventory"
)

// readServers reads the IPVS table with its real servers until two readings agree, and between those what it is
// attributed by.
func (e *exact) readServers(ctx context.Context) error {
	host := e.scan.scanner.config.Host
	reader := newIPVSReader(host)
	var by claims
	servers, _, err := agreed(ctx, func(ctx context.Context) ([]inventory.VirtualServer, error) {
		by = e.scan.claims(ctx)
		servers, err := readExactIPVS(ctx, reader)
		reader.alternate()
		return servers, err
	}, func(a, b []inventory.VirtualServer) bool { return reflect.DeepEqual(a, b) })
	if errors.Is(err, errNoIPVS) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range servers {
		servers[i].Owner, servers[i].Reason = by.owner(countedServer(&servers[i]))
	}
	slices.SortStableFunc(servers, func(a, b inventory.VirtualServer) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), a.Address.Compare(b.Address), cmp.Compare(a.FWMark, b.FWMark))
	})
	e.node.Servers = servers
	return nil
}

// countedServer is a virtual server as it is attributed.
func countedServer(server *inventory.VirtualServer) virtualServer {
	counted := virtualServer{
		protocol: server.Protocol, address: server.Address, fwmark: server.FWMark, scheduler: server.Scheduler,
		realServers: uint32(len(server.RealServers)), //nolint:gosec // far fewer
	}
	for _, real := range server.RealServers {
		if real.Forward != "Masq" {
			counted.others++
		}
	}
	return counted
}

// readExactIPVS reads the table once, in the kernel's order.
func readExactIPVS(ctx context.Context, reader *ipvsReader) ([]inventory.VirtualServer, error) {
	var servers []inventory.VirtualServer
	var refused error
	_, err := reader.read(ctx, func() ipvsVisitor {
		servers, refused = nil, nil
		return func(_ *virtualServer, line []byte) {
			if refused == nil {
				servers, refused = addIPVSLine(servers, line)
			}
		}
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("the IPVS table: %w", refused)
	}
	if err != nil {
		return nil, err
	}
	return servers, nil
}

var errIPVSLine = errors.New("it is not understood")

func addIPVSLine(servers []inventory.VirtualServer, line []byte) ([]inventory.VirtualServer, error) {
	if !bytes.HasPrefix(line, []byte("  -> ")) {
		server, err := parseVirtualServer(line)
		return append(servers, server), err
	}
	if len(servers) == 0 {
		return nil, errIPVSLine
	}
	real, err := parseRealServer(line)
	last := &servers[len(servers)-1]
	last.RealServers = append(last.RealServers, real)
	return servers, err
}

func parseVirtualServer(line []byte) (inventory.VirtualServer, error) {
	protocol, rest := field(line)
	where, rest := field(rest)
	scheduler, flags := field(rest)
	server := inventory.VirtualServer{
		Protocol: printable(protocol), Scheduler: printable(scheduler), Flags: printable(bytes.TrimSpace(flags)),
	}
	var ok bool
	if server.Protocol == fwmProtocol {
		server.FWMark, ok = parseHex32(where)
	} else {
		server.Address, ok = parseHexAddrPort(where)
	}
	if !ok || server.Scheduler == "" {
		return server, errIPVSLine
	}
	return server, nil
}

func parseRealServer(line []byte) (inventory.RealServer, error) {
	_, rest := field(line)
	where, rest := field(rest)
	forward, rest := field(rest)
	weight, _ := field(rest)
	address, okWhere := parseHexAddrPort(where)
	number, okWeight := parseDecimal(weight)
	if !okWhere || !okWeight {
		return inventory.RealServer{}, errIPVSLine
	}
	return inventory.RealServer{
		Address: address, Forward: strings.Clone(string(forward)), Weight: uint32(number), //nolint:gosec // an int of the kernel's
	}, nil
}
