package collect

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"offramp.dev/offramp/agent/inventory"
)

// ruleServices are those of iptables mode, of one backend and family: a rule of nat KUBE-SERVICES for each, "-d VIP/32 -p tcp
// -m comment --comment "ns/name:port cluster IP" -m tcp --dport 443 -j KUBE-SVC-...", and rules with DNAT in the chains that it
// leads to (pkg/proxy/iptables/proxier.go syncProxyRules).
type ruleServices struct {
	source chainSource
	// chains are those that Services lead to.
	chains map[inventoryKey]string
}

// inventoryKey tells Services of one place apart.
type inventoryKey struct {
	protocol string
	address  netip.AddrPort
}

func keyOfService(service *inventory.Service) inventoryKey {
	return inventoryKey{service.Protocol, service.Address}
}

func newRuleServices(source *nftSource) serviceSource { return &ruleServices{source: source} }

func (r *ruleServices) close() error { return r.source.close() }

func (r *ruleServices) services(ctx context.Context) ([]inventory.Service, error) {
	lines, err := r.chain(ctx, "KUBE-SERVICES")
	if err != nil {
		return nil, err
	}
	r.chains = map[inventoryKey]string{}
	var services []inventory.Service
	for i := range lines {
		service, ok := serviceOfLine(&lines[i])
		if !ok {
			continue
		}
		if key := keyOfService(&service); r.chains[key] == "" {
			r.chains[key] = lines[i].targets[0]
			services = append(services, service)
		}
	}
	return services, nil
}

func (r *ruleServices) chain(ctx context.Context, chain string) ([]ruleLine, error) {
	lines, _, err := repeat(ctx, func(ctx context.Context) ([]ruleLine, error) { return r.source.chain(ctx, "nat", chain) })
	return lines, err
}

// serviceOfLine reads a rule of KUBE-SERVICES, if it is a Service's.
func serviceOfLine(line *ruleLine) (inventory.Service, bool) {
	prefix, err := netip.ParsePrefix(line.after("-d"))
	port, portErr := strconv.ParseUint(line.after("--dport"), 10, 16)
	protocol := strings.ToUpper(line.after("-p"))
	if err != nil || portErr != nil || !prefix.IsSingleIP() || protocol == "" || len(line.targets) != 1 {
		return inventory.Service{}, false
	}
	name, _, _ := strings.Cut(strings.Trim(line.after("--comment"), `"`), " ")
	return inventory.Service{Name: name, Protocol: protocol, Address: netip.AddrPortFrom(prefix.Addr(), uint16(port))}, true
}

// after is the word that follows another one.
func (l *ruleLine) after(word string) string {
	at := slices.Index(l.words, word)
	if at < 0 || at+1 >= len(l.words) || at > 0 && l.words[at-1] == "!" {
		return ""
	}
	return l.words[at+1]
}

// maxServiceDepth bounds how far chains are followed: a Service's, an external one's, an endpoint's.
const maxServiceDepth = 4

func (r *ruleServices) endpoints(ctx context.Context, service *inventory.Service) error {
	return r.follow(ctx, r.chains[keyOfService(service)], service, maxServiceDepth)
}

func (r *ruleServices) follow(ctx context.Context, chain string, service *inventory.Service, depth int) error {
	if chain == "" || depth == 0 {
		return nil
	}
	lines, err := r.chain(ctx, chain)
	if err != nil {
		return besidesAbsence(err)
	}
	for i := range lines {
		if endpoint, err := netip.ParseAddrPort(lines[i].after("--to-destination")); err == nil {
			service.Endpoints = append(service.Endpoints, endpoint)
		}
		for _, target := range lines[i].targets {
			if target == "KUBE-MARK-MASQ" {
				continue
			}
			if err := r.follow(ctx, target, service, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}
