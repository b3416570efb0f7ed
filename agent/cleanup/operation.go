package cleanup

import (
	"fmt"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// tableOf is the table that an operation of STAGE_RULES changes.
func tableOf(operation *offrampv1.Operation) string {
	switch change := operation.GetChange().(type) {
	case *offrampv1.Operation_DeleteRule:
		return change.DeleteRule.GetTable()
	case *offrampv1.Operation_DeleteChain:
		return change.DeleteChain.GetTable()
	case *offrampv1.Operation_DeleteTable:
		return change.DeleteTable.GetName()
	default:
		return ""
	}
}

// describe says in a few words what an operation is about, for errors and the journal's notes. Two operations that would
// remove the same thing have the same description: counts and positions are left out.
func describe(operation *offrampv1.Operation) string {
	switch change := operation.GetChange().(type) {
	case *offrampv1.Operation_SetRouteSource:
		return "source for " + change.SetRouteSource.GetAddress()
	case *offrampv1.Operation_DeleteVirtualServer:
		server := change.DeleteVirtualServer
		return fmt.Sprintf("virtual server %s %s port %d", server.GetProtocol(), server.GetAddress(), server.GetPort())
	case *offrampv1.Operation_DeleteLink:
		return "link " + change.DeleteLink.GetName()
	case *offrampv1.Operation_DeleteRule:
		rule := change.DeleteRule
		return fmt.Sprintf("rule of %s in table %s: %s", sectionWords(rule.GetSection()), rule.GetTable(), rule.GetRule())
	case *offrampv1.Operation_DeleteChain:
		chain := change.DeleteChain
		return fmt.Sprintf("chain of %s in table %s: %s", sectionWords(chain.GetSection()), chain.GetTable(), chain.GetChain())
	case *offrampv1.Operation_DeleteTable:
		return "table " + change.DeleteTable.GetFamily() + " " + change.DeleteTable.GetName()
	case *offrampv1.Operation_DestroySet:
		return "ipset " + change.DestroySet.GetName()
	case *offrampv1.Operation_DeleteAccountingObject:
		return "nfacct object " + change.DeleteAccountingObject.GetName()
	case *offrampv1.Operation_ResetSysctl:
		return "sysctl " + change.ResetSysctl.GetPath()
	case *offrampv1.Operation_DeleteRoute:
		return "route on " + change.DeleteRoute.GetLink() + " to " + change.DeleteRoute.GetAddress()
	default:
		return "an operation of a kind that this version does not know"
	}
}

func sectionWords(section offrampv1.SectionKind) string {
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
