package collect

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// serviceSource is where the kernel holds Services: the IPVS table, the rules of iptables mode, the maps of nftables mode.
type serviceSource interface {
	// services lists the Services, without endpoints where these are dear to read.
	services(ctx context.Context) ([]inventory.Service, error)
	// endpoints adds the endpoints of one of them.
	endpoints(ctx context.Context, service *inventory.Service) error
	close() error
}

// Services lists what the kernel knows of the Services that pick chooses, with their endpoints, from every mode's state. pick
// is asked once for each place where Services are, with all that are there. What could not be read is left out and in the
// error. Like Scan it changes nothing.
func (s *Scanner) Services(ctx context.Context, pick func([]inventory.Service) []inventory.Service) ([]inventory.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.SectionTimeout)
	defer cancel()
	sources, errs := s.serviceSources(ctx)
	var all []inventory.Service
	for _, source := range sources {
		found, err := pickedServices(ctx, source, pick)
		all = append(all, found...)
		errs = errors.Join(errs, besidesAbsence(err), source.close())
	}
	return mergeServices(all), errs
}

func (s *Scanner) serviceSources(ctx context.Context) ([]serviceSource, error) {
	sources := []serviceSource{&ipvsServices{host: s.config.Host}}
	var errs error
	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		for _, open := range []func(*nftSource) serviceSource{newNFTServices, newRuleServices} {
			source, err := s.rules.openNFTSource(ctx, family)
			if err != nil {
				errs = errors.Join(errs, besidesAbsence(err))
				continue
			}
			sources = append(sources, open(source))
		}
	}
	for _, layout := range []legacyLayout{legacyIPv4(), legacyIPv6()} {
		sources = append(sources, &ruleServices{source: s.rules.openLegacySource(ctx, layout)})
	}
	return sources, errs
}

func pickedServices(
	ctx context.Context, source serviceSource, pick func([]inventory.Service) []inventory.Service,
) ([]inventory.Service, error) {
	all, err := source.services(ctx)
	if err != nil {
		return nil, err
	}
	picked := pick(all)
	for i := range picked {
		if err := source.endpoints(ctx, &picked[i]); err != nil {
			return picked[:i], err
		}
	}
	return picked, nil
}

// mergeServices makes one of those that several modes serve at the same address.
func mergeServices(all []inventory.Service) []inventory.Service {
	byKey := func(a, b inventory.Service) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), a.Address.Compare(b.Address))
	}
	slices.SortStableFunc(all, byKey)
	var merged []inventory.Service
	for _, service := range all {
		if last := len(merged) - 1; last >= 0 && byKey(merged[last], service) == 0 {
			merged[last].Name = cmp.Or(merged[last].Name, service.Name)
			merged[last].Endpoints = append(merged[last].Endpoints, service.Endpoints...)
			continue
		}
		service.Endpoints = slices.Clone(service.Endpoints)
		merged = append(merged, service)
	}
	for i := range merged {
		slices.SortFunc(merged[i].Endpoints, netip.AddrPort.Compare)
		merged[i].Endpoints = slices.Compact(merged[i].Endpoints)
	}
	return merged
}

// ipvsServices are those of ipvs mode. The table names none.
type ipvsServices struct{ host Host }

func (i *ipvsServices) services(ctx context.Context) ([]inventory.Service, error) {
	reader := newIPVSReader(i.host)
	servers, _, err := repeat(ctx, func(ctx context.Context) ([]inventory.VirtualServer, error) { return readExactIPVS(ctx, reader) })
	if errors.Is(err, errNoIPVS) {
		return nil, nil
	}
	var services []inventory.Service
	for _, server := range servers {
		service := inventory.Service{Protocol: server.Protocol, Address: server.Address}
		for _, real := range server.RealServers {
			if real.Weight > 0 { // 0: it takes no new connections
				service.Endpoints = append(service.Endpoints, real.Address)
			}
		}
		services = append(services, service)
	}
	return services, err
}

func (i *ipvsServices) endpoints(context.Context, *inventory.Service) error { return nil }

func (i *ipvsServices) close() error { return nil }
