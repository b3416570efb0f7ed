package collect

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// nftServices are those of nftables mode, of one family: elements of the map service-ips, each with a verdict that leads to a
// chain "service-HASH-ns/name/protocol/port" (pkg/proxy/nftables/proxier.go). That has one rule that translates to an
// endpoint, or to those of an anonymous map; up to 1.35, and where a Service has session affinity, it leads on to a chain for
// each endpoint.
type nftServices struct {
	*nftSource
	chains map[inventoryKey]string
}

func newNFTServices(source *nftSource) serviceSource { return &nftServices{nftSource: source} }

func (n *nftServices) table() nftTableKey { return nftTableKey{n.family, "kube-proxy"} }

func (n *nftServices) services(ctx context.Context) ([]inventory.Service, error) {
	if err := n.exists(ctx, n.table(), "services"); err != nil {
		return nil, err
	}
	n.chains = map[inventoryKey]string{}
	var services []inventory.Service
	err := n.reader.elements(ctx, n.table(), "service-ips", func(element *nftElement) error {
		if len(element.key) != serviceKeyWidth(n.family) {
			return errServiceKey
		}
		service := serviceOfElement(element)
		n.chains[keyOfService(&service)] = string(element.data.chain)
		services = append(services, service)
		return nil
	})
	return services, err
}

func serviceOfElement(element *nftElement) inventory.Service {
	address, rest := element.key[:len(element.key)-8], element.key[len(element.key)-8:]
	ip, _ := netip.AddrFromSlice(address)
	return inventory.Service{
		Name: serviceOfChain(string(element.data.chain)), Protocol: protocolName(rest[0]),
		Address: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest[4:])),
	}
}

// serviceOfChain is the Service of a chain "service-2QRHZV4L-default/kubernetes/tcp/https": "default/kubernetes:https".
func serviceOfChain(chain string) string {
	parts := strings.SplitN(chain, "-", 3)
	if len(parts) < 3 {
		return ""
	}
	words := strings.Split(printable([]byte(parts[2])), "/")
	switch {
	case len(words) == 4 && words[3] != "":
		return words[0] + "/" + words[1] + ":" + words[3]
	case len(words) >= 3:
		return words[0] + "/" + words[1]
	default:
		return ""
	}
}

func (n *nftServices) endpoints(ctx context.Context, service *inventory.Service) error {
	return n.follow(ctx, n.chains[keyOfService(service)], service, maxServiceDepth)
}

// follow reads where a chain's rules translate to, and those of the chains that it leads to.
func (n *nftServices) follow(ctx context.Context, chain string, service *inventory.Service, depth int) error {
	if chain == "" || depth == 0 {
		return nil
	}
	var next, maps []string
	err := n.reader.rulesOfChain(ctx, n.table(), chain, func(_ nftKind, object *nftObject) error {
		rule := natRule{family: n.family}
		err := eachExpression(object.expressions, rule.expression)
		service.Endpoints = append(service.Endpoints, rule.endpoints()...)
		next, maps = append(next, rule.chains...), append(maps, rule.maps...)
		return err
	})
	for _, name := range maps {
		if err == nil {
			err = n.reader.elements(ctx, n.table(), name, func(element *nftElement) error {
				if endpoint, ok := endpointOfValue(element.data.value, n.family); ok {
					service.Endpoints = append(service.Endpoints, endpoint)
				}
				if len(element.data.chain) > 0 {
					next = append(next, string(element.data.chain))
				}
				return nil
			})
		}
	}
	for _, name := range next {
		if err == nil {
			err = n.follow(ctx, name, service, depth-1)
		}
	}
	return err
}

// natRule is what a rule says of where it leads.
type natRule struct {
	family       uint8
	address      netip.Addr
	port         uint16
	nat          bool
	chains, maps []string
}

func (r *natRule) expression(name, data []byte) error {
	switch string(name) {
	case "nat":
		r.nat = true
	case "immediate":
		immediate, err := parseImmediate(data)
		switch {
		case err != nil:
			return err
		case immediate.isVerdict():
			if len(immediate.chain) > 0 {
				r.chains = append(r.chains, string(immediate.chain))
			}
		case len(immediate.value) == addressWidth(r.family):
			r.address, _ = netip.AddrFromSlice(immediate.value)
		case len(immediate.value) == 2:
			r.port = binary.BigEndian.Uint16(immediate.value)
		}
	case "lookup":
		line := nftLine{loaded: map[uint32]nftLoad{}}
		if err := line.addLookup(data); err != nil {
			return err
		}
		for _, set := range line.sets {
			if strings.HasPrefix(set, "__map") { // nft's name for a map that is part of a rule
				r.maps = append(r.maps, set)
			}
		}
	}
	return nil
}

func (r *natRule) endpoints() []netip.AddrPort {
	if !r.nat || !r.address.IsValid() || r.port == 0 {
		return nil
	}
	return []netip.AddrPort{netip.AddrPortFrom(r.address, r.port)}
}

func addressWidth(family uint8) int {
	if family == unix.NFPROTO_IPV6 {
		return 16
	}
	return 4
}

// endpointOfValue reads address . port, each padded to a register.
func endpointOfValue(value []byte, family uint8) (netip.AddrPort, bool) {
	width := addressWidth(family)
	if len(value) < width+2 {
		return netip.AddrPort{}, false
	}
	address, ok := netip.AddrFromSlice(value[:width])
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(value[width:])), ok
}
