package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"offramp.dev/offramp/agent/inventory"
)

// Names of what a target stands for.
const (
	NameKubernetes = "kubernetes"
	NameDNS        = "dns"
	NameGiven      = "given"
)

// MaxTargets bounds how many are tried.
const MaxTargets = 10

// Target is one address of a Service that is tried.
type Target struct {
	// Name is one of NameKubernetes, NameDNS, NameGiven.
	Name string
	// Protocol is "tcp" or "udp".
	Protocol string
	// Service is where clients connect.
	Service netip.AddrPort
	// Endpoints are where it leads, as far as is known.
	Endpoints []netip.AddrPort
}

// String is "dns udp 10.96.0.10:53".
func (t *Target) String() string { return t.Name + " " + t.Protocol + " " + t.Service.String() }

// Pick chooses, of all Services in one place, the kubernetes Service and that of the cluster's DNS, of each family.
//
// The kubernetes Service is "default/kubernetes" at port 443. IPVS has no names: there it is the lowest address that ends in
// 1 with TCP port 443, since the API server takes the first address of the range of Services
// (pkg/controlplane/instance.go). DNS is what serves port 53 by UDP and by TCP at one address: one whose name begins with
// "kube-system/" before others, then the lowest.
func Pick(all []inventory.Service) []inventory.Service {
	const most = 3 // of each family
	picked := make([]inventory.Service, 0, 2*most)
	for _, ipv6 := range []bool{false, true} {
		var family []inventory.Service
		for _, service := range all {
			if service.Address.IsValid() && service.Address.Addr().Is6() == ipv6 {
				family = append(family, service)
			}
		}
		picked = append(picked, pickKubernetes(family)...)
		picked = append(picked, pickDNS(family)...)
	}
	return picked
}

func pickKubernetes(all []inventory.Service) []inventory.Service {
	candidates := filter(all, func(service inventory.Service) bool {
		named := service.Name == "default/kubernetes" || strings.HasPrefix(service.Name, "default/kubernetes:")
		raw := service.Address.Addr().AsSlice()
		return isKubernetesPort(service) && (named || service.Name == "" && raw[len(raw)-1] == 1)
	})
	return lowest(candidates)
}

func isKubernetesPort(service inventory.Service) bool {
	return service.Protocol == "TCP" && service.Address.Port() == 443
}

func pickDNS(all []inventory.Service) []inventory.Service {
	protocols := map[netip.Addr]map[string]bool{}
	asked := filter(all, func(service inventory.Service) bool { return service.Address.Port() == 53 })
	for _, service := range asked {
		at := service.Address.Addr()
		if protocols[at] == nil {
			protocols[at] = map[string]bool{}
		}
		protocols[at][service.Protocol] = true
	}
	both := filter(asked, func(service inventory.Service) bool {
		at := protocols[service.Address.Addr()]
		return at["UDP"] && at["TCP"] && service.Protocol != "SCTP"
	})
	system := filter(both, func(service inventory.Service) bool { return strings.HasPrefix(service.Name, "kube-system/") })
	if len(system) > 0 {
		both = system
	}
	first := lowest(both)
	return filter(both, func(service inventory.Service) bool { return service.Address == first[0].Address })
}

func filter(all []inventory.Service, keep func(inventory.Service) bool) []inventory.Service {
	var kept []inventory.Service
	for _, service := range all {
		if keep(service) {
			kept = append(kept, service)
		}
	}
	return kept
}

// lowest is the one with the lowest address, if there is any.
func lowest(all []inventory.Service) []inventory.Service {
	if len(all) == 0 {
		return nil
	}
	return []inventory.Service{slices.MinFunc(all, func(a, b inventory.Service) int { return a.Address.Compare(b.Address) })}
}

// Targets makes targets of what Pick chose, and of those that a person named before them; at most MaxTargets. Where several
// places name different addresses of the kubernetes Service or of DNS, all are tried.
func Targets(given []Target, services []inventory.Service) []Target {
	targets := slices.Clone(given)
	for _, service := range services {
		name := NameKubernetes
		if service.Address.Port() == 53 {
			name = NameDNS
		}
		target := Target{name, strings.ToLower(service.Protocol), service.Address, service.Endpoints}
		same := func(other Target) bool { return other.Protocol == target.Protocol && other.Service == target.Service }
		if !slices.ContainsFunc(given, same) {
			targets = append(targets, target)
		}
	}
	return targets[:min(len(targets), MaxTargets)]
}

// ErrTarget says that a text names no target.
var ErrTarget = errors.New("a connection to try is named PROTOCOL/SERVICE=ENDPOINT[,ENDPOINT...], as tcp/10.96.0.1:443=192.0.2.1:6443")

// ParseTarget reads "tcp/10.96.0.1:443=192.0.2.1:6443,192.0.2.2:6443". Without endpoints nothing is compared. Port 53 is
// asked a question of DNS, and by UDP no other port can be tried. An error is ErrTarget.
func ParseTarget(text string) (Target, error) {
	where, endpoints, compared := strings.Cut(text, "=")
	protocol, address, _ := strings.Cut(where, "/")
	service, err := netip.ParseAddrPort(address)
	target := Target{Name: NameGiven, Protocol: protocol, Service: service}
	if service.Port() == 53 {
		target.Name = NameDNS
	}
	switch {
	case err != nil || service.Port() == 0:
		return Target{}, fmt.Errorf("%q: %w", text, ErrTarget)
	case protocol != "tcp" && (protocol != "udp" || target.Name != NameDNS):
		return Target{}, fmt.Errorf("%q: tcp, or udp to port 53: %w", text, ErrTarget)
	}
	for _, one := range strings.Split(endpoints, ",") {
		endpoint, err := netip.ParseAddrPort(one)
		if compared && (err != nil || endpoint.Port() == 0) {
			return Target{}, fmt.Errorf("%q: endpoint %q: %w", text, one, ErrTarget)
		}
		if compared {
			target.Endpoints = append(target.Endpoints, endpoint)
		}
	}
	return target, nil
}
