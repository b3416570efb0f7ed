package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// serviceServer is a virtual server of one Service, with its real servers.
type serviceServer struct {
	attributedServer
	persistent  bool
	reals       []string
	statistics  serverStatistics
	established uint64
}

// serversOf hands the virtual servers of a Service to out, each followed by its real servers. Where there is no IPVS there
// is nothing to hand out.
func (s *Scanner) serversOf(ctx context.Context, query *offrampv1.ServiceQuery, out *detailItems) error {
	parsed, err := parseServiceQuery(query)
	if err != nil {
		return err
	}
	servers, err := s.readServers(ctx, &parsed)
	if errors.Is(err, errNoIPVS) {
		return nil
	}
	if err != nil {
		return err
	}
	trafficErr := s.readServersTraffic(ctx, servers)
	for _, server := range servers {
		for _, item := range server.items() {
			if err := out.add(item); err != nil {
				return err
			}
		}
	}
	return trafficErr
}

// readServers reads the table until two readings agree, and keeps what the query names.
func (s *Scanner) readServers(ctx context.Context, query *serviceQuery) ([]*serviceServer, error) {
	reader := newIPVSReader(s.config.Host)
	type reading struct {
		servers []*serviceServer
		content uint64
	}
	table, _, err := agreed(ctx, func(ctx context.Context) (reading, error) {
		var found []*serviceServer
		table, err := reader.read(ctx, func() ipvsVisitor {
			found = nil
			return func(server *virtualServer, line []byte) {
				if query.names(server) {
					found = note(found, server, line)
				}
			}
		})
		if err != nil {
			return reading{}, err
		}
		reader.alternate()
		return reading{found, table.content}, nil
	}, func(a, b reading) bool { return a.content == b.content })
	if err != nil || len(table.servers) == 0 {
		return nil, err
	}
	by := (&scan{scanner: s}).claims(ctx)
	for _, server := range table.servers {
		server.owner, server.reason = by.owner(server.virtualServer)
	}
	slices.SortFunc(table.servers, func(a, b *serviceServer) int { return compareServers(a.virtualServer, b.virtualServer) })
	return table.servers, nil
}

// names tells whether a virtual server is the Service's: one of its addresses with its port, or any address with its node
// port.
func (q *serviceQuery) names(server *virtualServer) bool {
	if server.protocol != protocolName(q.protocol) {
		return false
	}
	port := server.address.Port()
	return q.nodePort != 0 && port == q.nodePort || port == q.port && slices.Contains(q.addresses, server.address.Addr())
}

// note takes the line of a virtual server or of one of its real servers.
func note(found []*serviceServer, server *virtualServer, line []byte) []*serviceServer {
	if !bytes.HasPrefix(line, []byte("  -> ")) {
		_, flags := field(line)
		_, flags = field(flags)
		_, flags = field(flags)
		return append(found, &serviceServer{attributedServer: attributedServer{virtualServer: *server}, persistent: isPersistent(flags)})
	}
	last := found[len(found)-1]
	last.virtualServer = *server
	last.reals = append(last.reals, realServerText(line))
	return found
}

// realServerText writes a line that the parser has understood for people.
func realServerText(line []byte) string {
	var words [6][]byte
	for i := range words {
		words[i], line = field(line)
	}
	address, _ := parseHexAddrPort(words[1])
	return fmt.Sprintf("  -> %s %s weight %s, %s active and %s inactive connections", address, printable(words[2]), words[3], words[4], words[5])
}

// readServersTraffic adds connections and statistics.
func (s *Scanner) readServersTraffic(ctx context.Context, servers []*serviceServer) error {
	if len(servers) == 0 {
		return nil
	}
	byKey := map[serverKey]*serviceServer{}
	for _, server := range servers {
		byKey[server.key()] = server
	}
	err := readConnections(ctx, s.config.Host, func(one connection) {
		if server := byKey[one.server]; server != nil && one.established && !one.template {
			server.established++
		}
	})
	return errors.Join(err, readStatistics(ctx, func(key serverKey, statistics serverStatistics) {
		if server := byKey[key]; server != nil {
			server.statistics = statistics
		}
	}))
}

func (s *serviceServer) items() []string {
	affinity := ""
	if s.persistent {
		affinity = ", persistent"
	}
	head := fmt.Sprintf("ipvs %s %s %s%s, owner %s (%s), %d established connections now, %d connections and %d packets so far",
		s.protocol, netip.AddrPort.String(s.address), s.scheduler, affinity, s.owner, s.reason,
		s.established, s.statistics.connections, s.statistics.incomingPackets)
	return append([]string{head}, s.reals...)
}
