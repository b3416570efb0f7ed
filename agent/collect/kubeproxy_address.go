package collect

import (
	"fmt"
	"net/netip"
	"slices"
)

// Ports of kube-proxy (pkg/cluster/ports/ports.go).
const (
	metricsPort = 10249
	healthzPort = 10256

	// maxListeners bounds how many addresses are asked: each may take askTimeout.
	maxListeners = 4
)

// listeners is where a kube-proxy may be asked, best guess first.
type listeners struct{ metrics, healthz []netip.AddrPort }

// findListeners derives the addresses: what the caller says, else what the configurations of the processes say, else the
// defaults.
func findListeners(overrides KubeProxyAddresses, configs []proxyConfig, local *localAddresses) (listeners, error) {
	var said KubeProxyAddresses
	for _, config := range configs {
		said.Metrics = append(said.Metrics, config.metrics)
		said.Healthz = append(said.Healthz, config.healthz)
	}
	metrics, err := candidates(overrides.Metrics, said.Metrics, metricsPort)
	if err != nil {
		return listeners{}, err
	}
	healthz, err := candidates(overrides.Healthz, said.Healthz, healthzPort)
	if err != nil {
		return listeners{}, err
	}
	foreign := func(address netip.AddrPort) bool { return !isOwn(address.Addr(), local) }
	return listeners{
		metrics: slices.DeleteFunc(metrics, foreign),
		healthz: slices.DeleteFunc(healthz, foreign),
	}, nil
}

// candidates takes the overrides, all of which must be addresses, or else what was said, as far as it is one.
func candidates(overrides, said []string, port uint16) ([]netip.AddrPort, error) {
	var found []netip.AddrPort
	for _, text := range overrides {
		address, ok := parseListener(text, port)
		if !ok {
			return nil, fmt.Errorf("%q is not an address with a port", text)
		}
		found = append(found, address)
	}
	for _, text := range said {
		address, ok := parseListener(text, port)
		if ok && len(overrides) == 0 && len(found) < maxListeners && !slices.Contains(found, address) {
			found = append(found, address)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return []netip.AddrPort{
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port),
		netip.AddrPortFrom(netip.IPv6Loopback(), port),
	}, nil
}

// parseListener reads what a listener binds to as where it can be reached: a wildcard as loopback, an address without a
// port with kube-proxy's own.
func parseListener(text string, port uint16) (netip.AddrPort, bool) {
	listener, err := netip.ParseAddrPort(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.AddrPort{}, false
		}
		listener = netip.AddrPortFrom(address, port)
	}
	switch listener.Addr() {
	case netip.IPv4Unspecified():
		listener = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), listener.Port())
	case netip.IPv6Unspecified():
		listener = netip.AddrPortFrom(netip.IPv6Loopback(), listener.Port())
	}
	return listener, listener.Port() != 0
}

// isOwn: only the node itself is ever asked, whatever a command line says.
func isOwn(address netip.Addr, local *localAddresses) bool {
	return address.IsLoopback() || local != nil && local.OnNode(address)
}
