package render

import (
	"fmt"
	"net"
	"strconv"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// operationWords says exactly what an operation changes.
func operationWords(operation *offrampv1.Operation) string {
	switch change := operation.GetChange().(type) {
	case *offrampv1.Operation_SetRouteSource:
		set := change.SetRouteSource
		return fmt.Sprintf("set the source of the local route to %s on %s to %s", Clean(set.GetAddress()), Clean(set.GetLink()), Clean(set.GetSource()))
	case *offrampv1.Operation_DeleteRoute:
		return fmt.Sprintf("delete the local route to %s on %s", Clean(change.DeleteRoute.GetAddress()), Clean(change.DeleteRoute.GetLink()))
	case *offrampv1.Operation_DeleteVirtualServer:
		return virtualServerWords(change.DeleteVirtualServer)
	case *offrampv1.Operation_DeleteLink:
		link := change.DeleteLink
		return fmt.Sprintf("delete link %s, a %s with %s", Clean(link.GetName()), Clean(link.GetType()), count(link.GetAddresses(), "address"))
	case *offrampv1.Operation_DeleteRule:
		rule := change.DeleteRule
		return fmt.Sprintf("%s -t %s: delete rule %d, %s", backendWords(rule.GetSection()), Clean(rule.GetTable()), rule.GetPosition(), Clean(rule.GetRule()))
	case *offrampv1.Operation_DeleteChain:
		chain := change.DeleteChain
		return fmt.Sprintf("%s -t %s: delete chain %s with %s", backendWords(chain.GetSection()), Clean(chain.GetTable()), Clean(chain.GetChain()), count(chain.GetRules(), "rule"))
	case *offrampv1.Operation_DeleteTable:
		return fmt.Sprintf("delete nftables table %s %s", Clean(change.DeleteTable.GetFamily()), Clean(change.DeleteTable.GetName()))
	default:
		return restWords(operation)
	}
}

func restWords(operation *offrampv1.Operation) string {
	switch change := operation.GetChange().(type) {
	case *offrampv1.Operation_DestroySet:
		set := change.DestroySet
		return fmt.Sprintf("destroy ipset %s, %s with %s", Clean(set.GetName()), Clean(set.GetType()), count(set.GetEntries(), "entry"))
	case *offrampv1.Operation_DeleteAccountingObject:
		return "delete nfacct object " + Clean(change.DeleteAccountingObject.GetName())
	case *offrampv1.Operation_ResetSysctl:
		sysctl := change.ResetSysctl
		return fmt.Sprintf("set sysctl %s from %s to %s", Clean(sysctl.GetPath()), Clean(sysctl.GetFrom()), Clean(sysctl.GetTo()))
	default:
		return "something that this version does not know"
	}
}

func virtualServerWords(server *offrampv1.DeleteVirtualServer) string {
	at := net.JoinHostPort(Clean(server.GetAddress()), strconv.FormatUint(uint64(server.GetPort()), 10))
	return fmt.Sprintf("delete virtual server %s %s, %s with %s", Clean(server.GetProtocol()), at, Clean(server.GetScheduler()),
		count(uint64(server.GetRealServers()), "real server"))
}

// backendWords is the program that shows the rules of a section.
func backendWords(section offrampv1.SectionKind) string {
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
		return Word(section)
	}
}
