package cleanup

import (
	"cmp"
	"fmt"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxKept bounds Plan.kept, as cleanup.proto says.
const maxKept = 100

// keptList collects what stays although it looks as if it should go.
type keptList []*offrampv1.Kept

func (l *keptList) add(what string, owner kubeproxy.Owner, why string) {
	*l = append(*l, &offrampv1.Kept{What: what, Owner: string(owner), Why: why})
}

func (s *scope) kept() []*offrampv1.Kept {
	var list keptList
	s.keepLink(&list)
	s.keepServers(&list)
	for _, r := range s.rulesets {
		s.keepChains(&list, r)
	}
	s.keepSets(&list)
	s.keepAccounting(&list)
	if len(s.inv.Servers) > 0 || len(s.inv.Sets) > 0 {
		list.add("kernel modules and connection tracking", kubeproxy.OwnerKernel,
			"others may use them; unused, they do nothing")
	}
	return list[:min(len(list), maxKept)]
}

func (s *scope) keepLink(list *keptList) {
	link := s.inv.Link
	if link == nil || s.linkGoes {
		return
	}
	if owner := kubeproxy.LinkOwner(kubeproxy.Link{Name: link.Name, Type: link.Kind}); !owner.IsKubeProxy() {
		list.add("link "+link.Name, owner, fmt.Sprintf("its type is %q; kube-proxy's is a dummy", link.Kind))
	}
}

// keepServers names the virtual servers that may be kube-proxy's, and those on an address of kube-ipvs0.
func (s *scope) keepServers(list *keptList) {
	for i := range s.inv.Servers {
		server := &s.inv.Servers[i]
		if server.Owner == kubeproxy.OwnerUnknown || server.Owner == kubeproxy.Foreign("excluded") || s.needsLink(server) {
			list.add("virtual server "+serverName(server), server.Owner, server.Reason)
		}
	}
}

// needsLink reports whether a virtual server that stays has its address on kube-ipvs0 and on no other link.
func (s *scope) needsLink(server *inventory.VirtualServer) bool {
	if s.inv.Link == nil || s.goes(server.Owner) {
		return false
	}
	for _, own := range s.inv.Addresses {
		if own.Prefix.Addr() == server.Address.Addr() {
			return false
		}
	}
	for _, address := range s.inv.Link.Addresses {
		if address.Addr() == server.Address.Addr() {
			return true
		}
	}
	return false
}

func serverName(server *inventory.VirtualServer) string {
	if !server.Address.IsValid() {
		return fmt.Sprintf("%s %d", server.Protocol, server.FWMark)
	}
	return server.Protocol + " " + server.Address.String()
}

func (s *scope) keepChains(list *keptList, r *rulesetScope) {
	r.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
		owner := chain.Owner(table.Name, r.Family)
		if why := keptChain(table.Name, chain.Name, owner); why != "" {
			list.add("chain "+chainPlace(r, table.Name, chain.Name), owner, why)
		}
		if chain.Base {
			s.keepJumps(list, r, table.Name, chain)
		}
	})
}

// keptChain says why a chain with a name like kube-proxy's stays; "" for any other.
func keptChain(table, chain string, owner kubeproxy.Owner) string {
	switch {
	case chain == "KUBE-FIREWALL" && owner == kubeproxy.OwnerKubelet:
		return "kubelet's: it shields the node's loopback (CVE-2020-8558), and stays needed"
	case table == "nat" && chain == "KUBE-MARK-DROP":
		return "kubelets before 1.28 made it, and a CNI may still use it"
	case owner == kubeproxy.OwnerKubelet:
		return "kubelet's: iptables is recognised by it"
	case owner == kubeproxy.OwnerUnknown:
		return "a name of another version, or somebody else's"
	default:
		return ""
	}
}

func (s *scope) keepJumps(list *keptList, r *rulesetScope, table string, chain *inventory.Chain) {
	for i := range chain.Rules {
		rule := &chain.Rules[i]
		if rule.To == "" {
			continue
		}
		switch owner := kubeproxy.JumpOwner(rule.Jump(table, chain.Name, r.Family)); owner {
		case kubeproxy.OwnerKubelet:
			list.add("rule "+rulePlace(r, table, rule), owner, "kubelet's")
		case kubeproxy.OwnerUnknown:
			list.add("rule "+rulePlace(r, table, rule), owner, "not exactly as kube-proxy or kubelet makes it")
		}
	}
}

func (s *scope) keepSets(list *keptList) {
	for _, set := range s.inv.Sets {
		if owner := kubeproxy.SetOwner(set.Set); owner == kubeproxy.OwnerUnknown {
			list.add("ipset "+set.Name, owner, "a name of another version, or not of kube-proxy's type and family")
		}
	}
}

func (s *scope) keepAccounting(list *keptList) {
	used := s.usedAccounting()
	for _, name := range s.inv.Accounting {
		if owner := kubeproxy.NfacctOwner(name); s.goes(owner) && used[name] {
			list.add("accounting object "+name, owner, "a rule that stays counts into it")
		}
	}
}

// chainPlace and rulePlace name a chain and a rule to people.
func chainPlace(r *rulesetScope, table, chain string) string {
	return backendName(r.Section) + " " + table + " " + chain
}

func rulePlace(r *rulesetScope, table string, rule *inventory.Rule) string {
	return backendName(r.Section) + " " + table + " " + cmp.Or(rule.Text, fmt.Sprintf("number %d", rule.Position))
}

func backendName(section offrampv1.SectionKind) string {
	switch section {
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4:
		return "iptables-nft"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6:
		return "ip6tables-nft"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4:
		return "iptables-legacy"
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6:
		return "ip6tables-legacy"
	default:
		return section.String()
	}
}
