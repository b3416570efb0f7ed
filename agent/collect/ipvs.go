package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kindIPVS = offrampv1.SectionKind_SECTION_KIND_IPVS
	// maxExcluded is how many excluded CIDRs a report names.
	maxExcluded = 64
)

// readIPVS reports the IPVS table. attribute is asked only when there are virtual servers, statistics only when there are
// node ports among them.
func readIPVS(
	ctx context.Context, host Host, attribute func(context.Context) claims, statistics statisticsReader,
) *offrampv1.Section {
	table, by, attempts, err := readAgreedIPVS(ctx, host, attribute)
	var section *offrampv1.Section
	switch {
	case errors.Is(err, errNoIPVS):
		section = absent(kindIPVS)
	case err != nil:
		section = failed(kindIPVS, err)
	default:
		slices.SortFunc(table.servers, compareServers)
		servers := attributed(table.servers, by)
		section = ipvsSection(table, servers, by)
		content := &offrampv1.IpvsVolatile{}
		if len(servers) > 0 {
			content = readTraffic(ctx, host, servers, by.local, statistics)
		}
		content.ActiveConnections, content.InactiveConnections = table.active, table.inactive
		section.Volatile.Content = &offrampv1.SectionVolatile_Ipvs{Ipvs: content}
	}
	section.Volatile.Attempts = attempts
	return section
}

func ipvsSection(table *ipvsTable, servers []attributedServer, by claims) *offrampv1.Section {
	content := &offrampv1.IpvsFacts{
		VirtualServers:        uint64(len(table.servers)),
		RealServers:           table.realServers,
		RealServersWeightZero: table.weightZero,
		Schedulers:            table.schedulers(),
		Persistent:            table.persistent,
		ProbeLeft:             slices.ContainsFunc(servers, attributedServer.isProbe),
	}
	for _, prefix := range by.excluded[:min(len(by.excluded), maxExcluded)] {
		content.ExcludeCidrs = append(content.ExcludeCidrs, prefix.String())
	}
	if by.err != nil {
		content.AttributionError = shorten(by.err.Error())
	}
	content.Owners, content.Samples = sampled(servers)
	if items, ok := virtualServerList(table, by.local); ok {
		content.List = facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, items)
	}
	return read(kindIPVS, len(table.servers) == 0, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Ipvs{Ipvs: content},
	})
}

func compareServers(a, b virtualServer) int {
	return cmp.Or(
		cmp.Compare(a.protocol, b.protocol),
		a.address.Compare(b.address),
		cmp.Compare(a.fwmark, b.fwmark),
		cmp.Compare(a.scheduler, b.scheduler),
		cmp.Compare(a.realServers, b.realServers),
	)
}

func (t *ipvsTable) schedulers() []*offrampv1.SchedulerCount {
	counts := map[string]uint64{}
	for _, server := range t.servers {
		counts[server.scheduler]++
	}
	list := make([]*offrampv1.SchedulerCount, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, &offrampv1.SchedulerCount{Scheduler: name, VirtualServers: counts[name]})
	}
	return list
}

// attributedServer is a virtual server with its owner.
type attributedServer struct {
	virtualServer
	owner  kubeproxy.Owner
	reason string
}

func attributed(servers []virtualServer, by claims) []attributedServer {
	list := make([]attributedServer, 0, len(servers))
	for _, server := range servers {
		owner, reason := by.owner(server)
		list = append(list, attributedServer{server, owner, reason})
	}
	return list
}

// isProbe: kube-proxy's own, made to find out whether IPVS works, and deleted at once unless it was killed meanwhile.
func (s attributedServer) isProbe() bool {
	return s.owner.IsKubeProxy() && kubeproxy.IsProbe(s.artefact())
}

// sampled counts virtual servers by owner, with the first samples of each.
func sampled(servers []attributedServer) ([]*offrampv1.OwnerCount, []*offrampv1.VirtualServer) {
	owners := ownerCounter{}
	var samples []*offrampv1.VirtualServer
	for _, server := range servers {
		if owners.add(server.owner) <= maxSamples {
			samples = append(samples, server.sample())
		}
	}
	return owners.counts(), samples
}

func (s attributedServer) sample() *offrampv1.VirtualServer {
	sample := &offrampv1.VirtualServer{
		Protocol:    s.protocol,
		Port:        uint32(s.address.Port()),
		Fwmark:      s.fwmark,
		Scheduler:   s.scheduler,
		RealServers: s.realServers,
		Owner:       string(s.owner),
		Reason:      s.reason,
	}
	if s.protocol != fwmProtocol {
		sample.Address = s.address.Addr().String()
	}
	return sample
}

// virtualServerList is LIST_NAME_IPVS_VIRTUAL_SERVERS, sorted. ok is false when it cannot be told which virtual servers are
// on the node's own addresses.
func virtualServerList(table *ipvsTable, local *localAddresses) (items []string, ok bool) {
	if local == nil && len(table.servers) > 0 {
		return nil, false
	}
	items = make([]string, 0, len(table.servers))
	for _, server := range table.servers {
		if server.protocol == fwmProtocol || !local.OnNode(server.address.Addr()) {
			items = append(items, server.item())
		}
	}
	slices.Sort(items)
	return items, true
}

func (s virtualServer) item() string {
	if s.protocol == fwmProtocol {
		return fmt.Sprintf("%s %d", fwmProtocol, s.fwmark)
	}
	return s.protocol + " " + s.address.String()
}
