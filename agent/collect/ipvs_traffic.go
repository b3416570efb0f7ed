package collect

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// maxNodePorts is how many node ports a report tells the traffic of.
	maxNodePorts = 64
	// maxClients is how many client addresses it names of each.
	maxClients = 20
)

// traffic is what is counted over the connections of IPVS.
type traffic struct {
	// cuttable are the virtual servers that are not somebody else's: a clean-up would cut their connections.
	cuttable    map[serverKey]struct{}
	established uint64
	// udp is how many of these are flows of UDP.
	udp       uint64
	nodePorts map[serverKey]*nodePortTraffic
}

// nodePortTraffic is one virtual server that is a node port on an address of the node.
type nodePortTraffic struct {
	serverKey
	statistics serverStatistics
	clients    []netip.Addr // sorted, the lowest
}

func newTraffic(servers []attributedServer, local *localAddresses) *traffic {
	t := &traffic{cuttable: map[serverKey]struct{}{}, nodePorts: map[serverKey]*nodePortTraffic{}}
	for _, server := range servers {
		if server.protocol == fwmProtocol || server.owner.IsForeign() {
			continue
		}
		key := server.key()
		t.cuttable[key] = struct{}{}
		if server.owner.IsKubeProxy() && local != nil && local.OnNode(server.address.Addr()) {
			t.nodePorts[key] = &nodePortTraffic{serverKey: key}
		}
	}
	return t
}

// see counts one connection.
func (t *traffic) see(one connection) {
	if one.template {
		return
	}
	if _, found := t.cuttable[one.server]; !found {
		return
	}
	if one.established {
		t.established++
		if one.server.protocol == "UDP" {
			t.udp++
		}
	}
	if port := t.nodePorts[one.server]; port != nil {
		port.addClient(one.client.Addr())
	}
}

// addClient keeps the lowest addresses, so that two readings of the same connections name the same.
func (n *nodePortTraffic) addClient(client netip.Addr) {
	n.clients = insertBounded(n.clients, client, maxClients, netip.Addr.Compare)
}

// readTraffic reads connections, and statistics where there is a node port. What fails leaves out its own part alone.
func readTraffic(
	ctx context.Context, host Host, servers []attributedServer, local *localAddresses, statistics statisticsReader,
) *offrampv1.IpvsVolatile {
	t := newTraffic(servers, local)
	err := readConnections(ctx, host, t.see)
	if err != nil {
		t.established, t.udp = 0, 0
	}
	if len(t.nodePorts) > 0 {
		err = errors.Join(err, statistics(ctx, t.count))
	}
	content := &offrampv1.IpvsVolatile{EstablishedConnections: t.established, UdpFlows: t.udp, NodePorts: t.busiest()}
	if err != nil {
		content.TrafficError = shorten(err.Error())
	}
	return content
}

func (t *traffic) count(server serverKey, statistics serverStatistics) {
	if port := t.nodePorts[server]; port != nil {
		port.statistics = statistics
	}
}

// busiest lists node ports by connections, the most first.
func (t *traffic) busiest() []*offrampv1.NodePortTraffic {
	list := make([]*nodePortTraffic, 0, len(t.nodePorts))
	for _, port := range t.nodePorts {
		list = append(list, port)
	}
	slices.SortFunc(list, func(a, b *nodePortTraffic) int {
		return cmp.Or(
			cmp.Compare(b.statistics.connections, a.statistics.connections),
			cmp.Compare(a.protocol, b.protocol),
			a.address.Compare(b.address),
		)
	})
	ports := make([]*offrampv1.NodePortTraffic, 0, min(len(list), maxNodePorts))
	for _, port := range list[:min(len(list), maxNodePorts)] {
		ports = append(ports, port.report())
	}
	return ports
}

func (n *nodePortTraffic) report() *offrampv1.NodePortTraffic {
	clients := make([]string, 0, len(n.clients))
	for _, client := range n.clients {
		clients = append(clients, client.String())
	}
	slices.Sort(clients)
	return &offrampv1.NodePortTraffic{
		Protocol: n.protocol, Address: n.address.Addr().String(), Port: uint32(n.address.Port()),
		Connections: n.statistics.connections, IncomingPackets: n.statistics.incomingPackets, Clients: clients,
	}
}
