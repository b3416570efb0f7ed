package kubeproxy

import "slices"

// BuiltinChain reports whether a chain is one that the kernel itself provides in this iptables table.
func BuiltinChain(table, name string) bool {
	switch table {
	case "nat":
		return slices.Contains([]string{"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}, name)
	case "filter", "security":
		return slices.Contains([]string{"INPUT", "FORWARD", "OUTPUT"}, name)
	case "mangle":
		return slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, name)
	case "raw":
		return slices.Contains([]string{"PREROUTING", "OUTPUT"}, name)
	default:
		return false
	}
}

// ChainOwner tells whose a chain is, by its name and table alone.
//
// Built-in chains are OwnerKernel. A KUBE- name that no table lists, or one of kube-proxy's in another table, is
// OwnerUnknown; any other name that nobody known uses is foreign:unidentified.
func ChainOwner(chain Chain) Owner {
	name := chainName{chain.Table, chain.Name}
	switch {
	case BuiltinChain(chain.Table, chain.Name):
		return OwnerKernel
	case isIPTablesHashChain(name):
		return OwnerIPTables
	}
	if owner, found := chainOwners()[name]; found {
		return owner
	}
	if owner := find(foreignChains(), chain.Name); owner != "" {
		return owner
	}
	return strangerOwner(chain.Name)
}

// SetOwner tells whose an ipset is. A set with a name of kube-proxy's but another type or family is OwnerUnknown, as is a
// KUBE- name that no table lists.
func SetOwner(set Set) Owner {
	if slices.ContainsFunc(ipvsSets(), func(row setRow) bool { return set == row.set(IPv4) || set == row.set(IPv6) }) {
		return OwnerIPVS
	}
	if owner := find(foreignSets(), set.Name); owner != "" {
		return owner
	}
	return strangerOwner(set.Name)
}

// TableOwner tells whose a native nftables table is: kube-proxy's is "kube-proxy" in the families ip and ip6 alone
// (pkg/proxy/nftables/proxier.go kubeProxyTable). Tables that iptables-nft keeps its chains in are foreign:iptables-nft.
func TableOwner(table Table) Owner {
	if table.Name == "kube-proxy" && (table.Family == "ip" || table.Family == "ip6") {
		return OwnerNFTables
	}
	if owner := find(foreignTables(), table.Family+" "+table.Name); owner != "" {
		return owner
	}
	return Foreign(unidentified)
}

// LinkOwner tells whose a link is. kube-ipvs0 is kube-proxy's only as a dummy link
// (pkg/proxy/ipvs/netlink_linux.go DeleteDummyDevice leaves any other alone).
func LinkOwner(link Link) Owner {
	if link.Name == IPVSLink && link.Type == "dummy" {
		return OwnerIPVS
	}
	if owner := find(foreignLinks(), link.Name); owner != "" {
		return owner
	}
	return Foreign(unidentified)
}

// IPVSLink is the link that ipvs mode binds the addresses of Services to (pkg/proxy/ipvs/proxier.go defaultDummyDevice).
const IPVSLink = "kube-ipvs0"

func isIPTablesHashChain(chain chainName) bool {
	return chain.table == "nat" && slices.ContainsFunc(iptablesHashPrefixes(), func(prefix string) bool {
		return hasHash(chain.name, prefix)
	})
}

// strangerOwner is the owner of a name that nobody known uses.
func strangerOwner(name string) Owner {
	if couldBeKubeProxys(name) {
		return OwnerUnknown
	}
	return Foreign(unidentified)
}
