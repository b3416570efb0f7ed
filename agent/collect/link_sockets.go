package collect

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxWildcards is how many wildcard listeners a report names.
const maxWildcards = 64

// linkSockets is what the host's sockets have to do with the addresses of kube-ipvs0.
type linkSockets struct {
	addresses map[netip.Addr]struct{}
	// ephemeral: ports of UDP sockets that wait there are those of clients, which come and go.
	ephemeral portRange

	count     uint64
	samples   []hostSocket // sorted, the first ones
	wildcards []hostSocket // sorted by port, the first ones
}

func (l *linkSockets) see(one hostSocket) {
	if !one.lives() {
		return
	}
	if _, found := l.addresses[one.local.Addr()]; found {
		l.count++
		l.samples = insertBounded(l.samples, one, maxSamples, compareSockets)
		return
	}
	client := one.protocol == "udp" && l.ephemeral.contains(one.local.Port())
	if one.waits() && one.local.Addr().IsUnspecified() && !client {
		l.wildcards = insertBounded(l.wildcards, one, maxWildcards, compareSockets)
	}
}

// compareSockets goes by port first.
func compareSockets(a, b hostSocket) int {
	return cmp.Or(
		cmp.Compare(a.local.Port(), b.local.Port()),
		cmp.Compare(a.protocol, b.protocol),
		a.local.Compare(b.local),
		a.remote.Compare(b.remote),
	)
}

// insertBounded puts an item into a sorted list of the lowest, unless an equal one is there.
func insertBounded[T any](list []T, item T, most int, compare func(T, T) int) []T {
	place, found := slices.BinarySearchFunc(list, item, compare)
	if found || place == most {
		return list
	}
	return slices.Insert(list[:min(len(list), most-1)], place, item)
}

func readLinkSockets(ctx context.Context, host Host, addresses map[netip.Addr]struct{}) (*linkSockets, error) {
	sockets := &linkSockets{addresses: addresses, ephemeral: readEphemeralPorts(host)}
	err := readSockets(ctx, host, sockets.see)
	return sockets, err
}

// portRange is a range of ports, both ends included.
type portRange struct{ first, last uint16 }

func (p portRange) contains(port uint16) bool { return port >= p.first && port <= p.last }

// readEphemeralPorts reads net.ipv4.ip_local_port_range, which is for both families. Without it the kernel's default counts.
func readEphemeralPorts(host Host) portRange {
	ports := portRange{32768, 60999}
	text, err := os.ReadFile(filepath.Join(host.Proc, "sys/net/ipv4/ip_local_port_range"))
	if err != nil {
		return ports
	}
	var read portRange
	if _, err := fmt.Sscan(string(text), &read.first, &read.last); err != nil {
		return ports
	}
	return read
}

func reportSockets(list []hostSocket) []*offrampv1.HostSocket {
	sockets := make([]*offrampv1.HostSocket, 0, len(list))
	for _, one := range list {
		sockets = append(sockets, one.report())
	}
	return sockets
}

func (s hostSocket) report() *offrampv1.HostSocket {
	report := &offrampv1.HostSocket{Protocol: s.protocol, Local: s.local.String()}
	if !s.waits() {
		report.Remote = s.remote.String()
	}
	return report
}
