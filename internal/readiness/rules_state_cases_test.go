package readiness_test

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

func leftoverCases() []ruleCase {
	servers := func(n *testNode) { n.addServers("kube-proxy/ipvs", 2) }
	link := func(owner string) func(*testNode) {
		return func(n *testNode) { n.link = &offrampv1.IpvsLinkFacts{LinkType: "x", Owner: owner, Ipv4Addresses: 3} }
	}
	sets := func(n *testNode) { n.addSets("kube-proxy/ipvs", 17, 9) }
	chains := func(owner string) func(*testNode) {
		return func(n *testNode) { n.addChains(kinds.nft4, owner, 1, 0) }
	}
	tables := func(n *testNode) {
		n.nft.Owners = []*offrampv1.OwnerCount{{Owner: "kube-proxy/nftables", Count: 1}}
	}
	return []ruleCase{
		{"leftover-virtual-servers", "under iptables", iptablesMode, toNFTables, servers, says(warning)},
		{"leftover-virtual-servers", "under none", noMode, toNone, servers, says(warning)},
		{"leftover-virtual-servers", "under ipvs", ipvsMode, toNFTables, servers, silent},
		{"leftover-virtual-servers", "foreign", iptablesMode, toNFTables, func(n *testNode) { n.addServers("foreign:fwmark", 1) }, silent},
		{"leftover-virtual-servers", "unreadable", iptablesMode, toNFTables, cannotRead(kinds.ipvs), notRead},
		{"leftover-ipvs-link", "under nftables", nftablesMode, toNFTables, link("kube-proxy/ipvs"), says(warning)},
		{"leftover-ipvs-link", "somebody else's", nftablesMode, toNFTables, link("foreign:unidentified"), silent},
		{"leftover-ipvs-link", "unreadable", nftablesMode, toNFTables, cannotRead(kinds.link), notRead},
		{"leftover-ipsets", "under nftables", nftablesMode, toNFTables, sets, says(warning)},
		{"leftover-ipsets", "under ipvs", ipvsMode, toNFTables, sets, silent},
		{"leftover-ipsets", "unreadable", nftablesMode, toNFTables, cannotRead(kinds.ipsets), notRead},
		{"leftover-chains", "ipvs under iptables", iptablesMode, toIPTables, chains("kube-proxy/ipvs"), says(warning)},
		{"leftover-chains", "iptables under ipvs", ipvsMode, toNFTables, chains("kube-proxy/iptables"), says(warning)},
		{"leftover-chains", "shared under nftables", nftablesMode, toNFTables, chains("kube-proxy/shared"), says(warning)},
		{"leftover-chains", "shared under iptables", iptablesMode, toNFTables, chains("kube-proxy/shared"), silent},
		{"leftover-chains", "kubelet's", noMode, toNone, chains("kubelet"), silent},
		{"leftover-chains", "unreadable", iptablesMode, toNFTables, cannotRead(kinds.legacy6), notRead},
		{"leftover-tables", "under iptables", iptablesMode, toIPTables, tables, says(warning)},
		{"leftover-tables", "under nftables", nftablesMode, toNFTables, tables, silent},
		{"leftover-tables", "unreadable", iptablesMode, toIPTables, cannotRead(kinds.nftables), notRead},
	}
}

func sysctlCases() []ruleCase {
	const rule = "ipvs-sysctls-left"
	set := func(path, value string) func(*testNode) { return func(n *testNode) { n.setSysctl(path, value) } }
	return []ruleCase{
		{rule, "conntrack", nftablesMode, toNFTables, set("net/ipv4/vs/conntrack", "1"), says(info)},
		{rule, "strict ARP", nftablesMode, toNFTables, set("net/ipv4/conf/all/arp_announce", "2"), says(info)},
		{rule, "default", nftablesMode, toNFTables, set("net/ipv4/vs/conntrack", "0"), silent},
		{rule, "forwarding is everybody's", nftablesMode, toNFTables, set("net/ipv4/ip_forward", "1"), silent},
		{rule, "in use", ipvsMode, toNFTables, set("net/ipv4/vs/conntrack", "1"), silent},
		{rule, "unreadable", nftablesMode, toNFTables, cannotRead(kinds.sysctls), notRead},
	}
}

func foreignCases() []ruleCase {
	servers := func(n *testNode) { n.addServers("foreign:unidentified", 1) }
	marks := func(n *testNode) {
		n.addServers("foreign:fwmark", 1)
		n.ipvs.Samples[len(n.ipvs.GetSamples())-1].Protocol = "FWM"
	}
	reference := func(n *testNode) {
		n.tables[kinds.nft4].ForeignReferences = []*offrampv1.ForeignReference{
			{Table: "nat", FromChain: "CNI-HOSTPORT-SETMARK", ToChain: "KUBE-MARK-MASQ"},
		}
		n.tables[kinds.nft4].ForeignReferenceCount = 1
	}
	return []ruleCase{
		{"foreign-virtual-servers", "to nftables", iptablesMode, toNFTables, servers, says(blocker)},
		{"foreign-virtual-servers", "a mark, to nftables", ipvsMode, toNFTables, marks, says(blocker)},
		{"foreign-virtual-servers", "back to ipvs", nftablesMode, toIPVS, servers, says(blocker)},
		{"foreign-virtual-servers", "on nftables", nftablesMode, toNFTables, servers, says(warning)},
		{"foreign-virtual-servers", "to iptables", ipvsMode, toIPTables, servers, says(info)},
		{"foreign-virtual-servers", "to none", ipvsMode, toNone, servers, says(info)},
		{"foreign-virtual-servers", "kube-proxy's alone", ipvsMode, toNFTables, asIs, silent},
		{"foreign-virtual-servers", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.ipvs), notRead},
		{"foreign-references", "portmap", ipvsMode, toNFTables, reference, says(warning)},
		{"foreign-references", "counted alone", ipvsMode, toNFTables, func(n *testNode) {
			n.tables[kinds.nft6].ForeignReferenceCount = 7
		}, says(warning)},
		{"foreign-references", "nobody", ipvsMode, toNFTables, asIs, silent},
		{"foreign-references", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.nft6), notRead},
	}
}

func attributionCases() []ruleCase {
	return []ruleCase{
		{"unattributed-virtual-servers", "unknown", iptablesMode, toIPTables, func(n *testNode) {
			n.addServers("unknown", 2)
			n.ipvs.AttributionError = "ipsets could not be read"
		}, open},
		{"unattributed-virtual-servers", "known", ipvsMode, toNFTables, asIs, silent},
		{"unattributed-virtual-servers", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.ipvs), notRead},
		{"unattributed-objects", "set", nftablesMode, toNFTables, func(n *testNode) { n.addSets("unknown", 1, 0) }, open},
		{"unattributed-objects", "chain", nftablesMode, toNFTables, func(n *testNode) { n.addChains(kinds.nft4, "unknown", 1, 0) }, open},
		{"unattributed-objects", "owner of a newer version", nftablesMode, toNFTables, func(n *testNode) {
			n.addChains(kinds.nft4, "kube-proxy/ebpf", 1, 0)
		}, open},
		{"unattributed-objects", "foreign", nftablesMode, toNFTables, func(n *testNode) { n.addSets("foreign:calico", 1, 0) }, silent},
		{"unattributed-objects", "unreadable", nftablesMode, toNFTables, cannotRead(kinds.ipsets), notRead},
	}
}

func readingCases() []ruleCase {
	const rule = "section-unreadable"
	return []ruleCase{
		{rule, "all read", nftablesMode, toNFTables, asIs, silent},
		{rule, "sets", nftablesMode, toNFTables, cannotRead(kinds.ipsets), open},
		{rule, "kernel, to nftables", iptablesMode, toNFTables, cannotRead(kinds.kernel), open},
		{rule, "kernel, to iptables", iptablesMode, toIPTables, cannotRead(kinds.kernel), says(info)},
		{rule, "addresses", nftablesMode, toNFTables, cannotRead(kinds.addresses), says(info)},
		{rule, "host, to nftables", ipvsMode, toNFTables, cannotRead(kinds.host), open},
		{rule, "host, there already", nftablesMode, toNFTables, cannotRead(kinds.host), says(info)},
		{rule, "history", nftablesMode, toNFTables, cannotRead(kinds.history), says(info)},
	}
}
