package cleanup

import (
	"fmt"
	"net/netip"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// planSources makes new connections of the node to a VIP leave with the node's own address, before anything else: one that
// has a VIP as its source hangs once kube-ipvs0 is gone.
func (s *scope) planSources(list *operationList) {
	if !s.linkGoes {
		return
	}
	for _, route := range s.selfSourced() {
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_SOURCE,
			Owner: string(kubeproxy.OwnerIPVS),
			Why:   "new connections of the node to it are to leave with the node's own address",
			Change: &offrampv1.Operation_SetRouteSource{SetRouteSource: &offrampv1.SetRouteSource{
				Address: route.Address.String(), Link: s.inv.Link.Name, Source: s.ownAddress(route.Address).String(),
			}},
		})
	}
}

// selfSourced are the routes over kube-ipvs0 whose source has to change and can: the node has an address of that family.
func (s *scope) selfSourced() []inventory.LocalRoute {
	var routes []inventory.LocalRoute
	for _, route := range s.inv.Link.Routes {
		if route.SelfSource() && s.ownAddress(route.Address).IsValid() {
			routes = append(routes, route)
		}
	}
	return routes
}

// ownAddress is the node's primary address of the family that an address is of; else its first that reaches further than
// the link it is on. The zero Addr where the node has none.
func (s *scope) ownAddress(vip netip.Addr) netip.Addr {
	var first netip.Addr
	for _, own := range s.inv.Addresses {
		address := own.Prefix.Addr()
		if own.Loopback || !own.Up || address.Is4() != vip.Is4() || !address.IsGlobalUnicast() {
			continue
		}
		if own.Primary {
			return address
		}
		if !first.IsValid() {
			first = address
		}
	}
	return first
}

func (s *scope) planServers(list *operationList) {
	for i := range s.inv.Servers {
		server := &s.inv.Servers[i]
		if !s.goes(server.Owner) {
			continue
		}
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_VIRTUAL_SERVERS,
			Owner: string(server.Owner),
			Why:   server.Reason,
			Change: &offrampv1.Operation_DeleteVirtualServer{DeleteVirtualServer: &offrampv1.DeleteVirtualServer{
				Protocol: server.Protocol, Address: server.Address.Addr().String(), Port: uint32(server.Address.Port()),
				Scheduler: server.Scheduler, RealServers: uint32(len(server.RealServers)), //nolint:gosec // far fewer
			}},
		})
	}
}

func (s *scope) planLink(list *operationList) {
	if !s.linkGoes {
		return
	}
	link := s.inv.Link
	list.addAlone(&offrampv1.Operation{
		Stage:    offrampv1.Stage_STAGE_LINK,
		Owner:    string(kubeproxy.OwnerIPVS),
		Why:      "ipvs mode binds the addresses of Services to it",
		Releases: fmt.Sprintf("%d addresses that are no longer the node's own", len(link.Addresses)) + s.felix(),
		Change: &offrampv1.Operation_DeleteLink{DeleteLink: &offrampv1.DeleteLink{
			Name: link.Name, Type: link.Kind, Addresses: uint64(len(link.Addresses)),
		}},
	})
}

// felix tells people what to expect where Calico is: its Felix takes a node for one in ipvs mode by the link, and restarts
// when that comes or goes (felix/dataplane/driver.go, KubeIPVSSupportEnabled).
func (s *scope) felix() string {
	calico := false
	for _, r := range s.rulesets {
		r.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
			calico = calico || chain.Owner(table.Name, r.Family) == kubeproxy.Foreign("calico")
		})
	}
	if !calico {
		return ""
	}
	return "; Calico's Felix restarts once, since it tells ipvs mode by this link"
}

// planRoutes takes away the routes on lo: those that this plan makes for IPv6, and those that an earlier clean-up left.
func (s *scope) planRoutes(list *operationList) {
	addresses := map[netip.Addr]bool{}
	add := func(address netip.Addr) {
		if addresses[address] {
			return
		}
		addresses[address] = true
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_REST,
			Owner: "offramp",
			Why:   "it stood in for the route on " + kubeproxy.IPVSLink + ", and is a black hole without it",
			Change: &offrampv1.Operation_DeleteRoute{DeleteRoute: &offrampv1.DeleteRoute{
				Address: address.String(), Link: loopback,
			}},
		})
	}
	if s.linkGoes {
		for _, route := range s.selfSourced() {
			if !route.Address.Is4() {
				add(route.Address)
			}
		}
	}
	if s.linkGoes || s.inv.Link == nil {
		for _, route := range s.inv.OwnRoutes {
			add(route.Address)
		}
	}
}

const loopback = "lo"
