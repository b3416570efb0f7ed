package collect

import (
	"context"
	"fmt"
	"net/netip"

	"offramp.dev/offramp/internal/kubeproxy"
)

// claims is what virtual servers are attributed by.
type claims struct {
	ports *servicePorts   // nil when kube-proxy's sets could not be read
	local *localAddresses // nil when the node's addresses could not be read
	err   error           // why one of them is nil
	// excluded is ipvs.excludeCIDRs.
	excluded []netip.Prefix
}

// claims reads what virtual servers are attributed by.
func (c *scan) claims(ctx context.Context) claims {
	by := c.localClaims(ctx)
	ports, err := readServicePorts(ctx, c.scanner.modules)
	if err != nil {
		by.err = fmt.Errorf("read kube-proxy's sets: %w", err)
		return by
	}
	by.ports = ports
	return by
}

// localClaims reads the node's addresses alone.
func (c *scan) localClaims(ctx context.Context) claims {
	network, _, err := c.readNetwork(ctx)
	if err != nil {
		return claims{err: fmt.Errorf("read the node's addresses: %w", err), excluded: parseCIDRs(c.excludeCIDRs())}
	}
	return claims{local: network.local(), excluded: parseCIDRs(c.excludeCIDRs())}
}

// parseCIDRs leaves out what is no CIDR: kube-proxy refuses to start with such a setting.
func parseCIDRs(texts []string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			list = append(list, prefix.Masked())
		}
	}
	return list
}

// owner hands on only what could be read: a nil pointer in an interface would not be nil.
func (c claims) owner(server virtualServer) (kubeproxy.Owner, string) {
	var ports kubeproxy.ServicePorts
	var local kubeproxy.LocalAddresses
	if c.ports != nil {
		ports = c.ports
	}
	if c.local != nil {
		local = c.local
	}
	return kubeproxy.VirtualServerOwner(server.artefact(), ports, local, c.excluded)
}

func (s virtualServer) artefact() kubeproxy.VirtualServer {
	return kubeproxy.VirtualServer{
		Protocol:         s.protocol,
		Address:          s.address,
		OnlyMasquerading: s.others == 0,
		RealServers:      int(s.realServers),
	}
}

// excludeCIDRs is ipvs.excludeCIDRs as last seen.
func (c *scan) excludeCIDRs() []string { return c.scanner.excludeCIDRs() }
