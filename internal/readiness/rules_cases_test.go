package readiness_test

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

func kernelCases() []ruleCase {
	const rule = "kernel-too-old"
	kernel := func(release string, major, minor uint32) func(*testNode) {
		return func(n *testNode) { n.kernel = &offrampv1.KernelFacts{Release: release, Major: major, Minor: minor} }
	}
	return []ruleCase{
		{rule, "5.10", ipvsMode, toNFTables, kernel("5.10.0-30-amd64", 5, 10), says(blocker)},
		{rule, "5.12", ipvsMode, toNFTables, kernel("5.12.0", 5, 12), says(blocker)},
		{rule, "4.18 with back-ports", ipvsMode, toNFTables, kernel("4.18.0-553.el8_10.x86_64", 4, 18), says(blocker)},
		{rule, "5.13", ipvsMode, toNFTables, kernel("5.13.0", 5, 13), silent},
		{rule, "6.1", ipvsMode, toNFTables, kernel("6.1.0", 6, 1), silent},
		{rule, "5.10 to iptables", ipvsMode, toIPTables, kernel("5.10.0", 5, 10), silent},
		{rule, "5.10 to none", ipvsMode, toNone, kernel("5.10.0", 5, 10), silent},
		{rule, "5.10, runs all the same", nftablesMode, toNFTables, kernel("5.10.0", 5, 10), says(warning)},
		{rule, "no number, runs all the same", nftablesMode, toNFTables, kernel("custom", 0, 0), silent},
		{rule, "no number", ipvsMode, toNFTables, kernel("custom", 0, 0), open},
		{rule, "unreadable", ipvsMode, toNFTables, cannotRead(kinds.kernel), notRead},
	}
}

func modeCases() []ruleCase {
	seen := func(n *testNode) { n.proxy.Processes = []*offrampv1.KubeProxyProcess{{Pid: 7}} }
	answered := func(n *testNode) {
		n.proxy.Endpoints = []*offrampv1.KubeProxyEndpoint{{Url: "http://127.0.0.1:10249/proxyMode", Status: 500}}
	}
	silentEndpoint := func(n *testNode) {
		n.proxy.Endpoints = []*offrampv1.KubeProxyEndpoint{{Url: "http://127.0.0.1:10249/proxyMode", Error: "refused"}}
	}
	return []ruleCase{
		{"on-ipvs", "to nftables", ipvsMode, toNFTables, asIs, says(warning)},
		{"on-ipvs", "to none", ipvsMode, toNone, asIs, says(warning)},
		{"on-ipvs", "to ipvs", ipvsMode, toIPVS, asIs, silent},
		{"on-ipvs", "iptables", iptablesMode, toNFTables, asIs, silent},
		{"on-ipvs", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.kubeProxy), notRead},
		{"other-mode", "iptables to nftables", iptablesMode, toNFTables, asIs, says(info)},
		{"other-mode", "iptables to ipvs", iptablesMode, toIPVS, asIs, says(info)},
		{"other-mode", "there", iptablesMode, toIPTables, asIs, silent},
		{"other-mode", "on ipvs says it", ipvsMode, toNFTables, asIs, silent},
		{"other-mode", "unreadable", iptablesMode, toNFTables, cannotRead(kinds.kubeProxy), notRead},
		{"running-mode-unknown", "to nftables", unknownMode, toNFTables, asIs, open},
		{"running-mode-unknown", "nothing there, to none", unknownMode, toNone, asIs, silent},
		{"running-mode-unknown", "a process, to none", unknownMode, toNone, seen, open},
		{"running-mode-unknown", "an answer, to none", unknownMode, toNone, answered, open},
		{"running-mode-unknown", "no answer, to none", unknownMode, toNone, silentEndpoint, silent},
		{"running-mode-unknown", "a set, to none", unknownMode, toNone, func(n *testNode) { n.addSets("kube-proxy/ipvs", 1, 0) }, open},
		{"running-mode-unknown", "foreign set, to none", unknownMode, toNone, func(n *testNode) { n.addSets("foreign:kube-router", 1, 0) }, silent},
		{"running-mode-unknown", "unknown set, to none", unknownMode, toNone, func(n *testNode) { n.addSets("unknown", 1, 0) }, open},
		{"running-mode-unknown", "sets unreadable, to none", unknownMode, toNone, cannotRead(kinds.ipsets), open},
		{"running-mode-unknown", "of a newer version", iptablesMode, toIPTables, func(n *testNode) { n.proxy.RunningMode = 99 }, open},
		{"running-mode-unknown", "blind", unknownMode, toIPTables, func(n *testNode) { n.proxy.HostProcessesVisible = false }, open},
		{"running-mode-unknown", "known", nftablesMode, toNFTables, asIs, silent},
		{"running-mode-unknown", "unreadable", nftablesMode, toNFTables, cannotRead(kinds.kubeProxy), notRead},
	}
}

func disagreeCases() []ruleCase {
	const rule = "modes-disagree"
	shared := func(kind offrampv1.SectionKind, mode offrampv1.ProxyMode) func(*testNode) {
		return func(n *testNode) { n.tables[kind].SharedChainsMode = mode }
	}
	legacy := func(mode offrampv1.ProxyMode) func(*testNode) {
		return func(n *testNode) { n.fill(kinds.legacy4, mode, "kube-proxy/ipvs") }
	}
	noChains := func(n *testNode) {
		n.tables[kinds.nft4], n.tables[kinds.nft6] = kubelets(), kubelets()
	}
	return []ruleCase{
		{rule, "agree", iptablesMode, toNFTables, asIs, silent},
		{rule, "agree on ipvs", ipvsMode, toNFTables, asIs, silent},
		{rule, "agree on nftables", nftablesMode, toNFTables, asIs, silent},
		{rule, "never synced", iptablesMode, toIPTables, shared(kinds.nft4, ipvsMode), says(blocker)},
		{rule, "never synced in IPv6", iptablesMode, toNFTables, shared(kinds.nft6, ipvsMode), says(blocker)},
		{rule, "ipvs over iptables", ipvsMode, toNFTables, shared(kinds.nft4, iptablesMode), says(blocker)},
		{rule, "ipvs, but none there", ipvsMode, toNFTables, func(n *testNode) { n.ipvs = &offrampv1.IpvsFacts{} }, says(blocker)},
		{rule, "iptables, but no chain", iptablesMode, toIPTables, noChains, says(blocker)},
		{rule, "nftables, but no table", nftablesMode, toNFTables, func(n *testNode) { n.nft = &offrampv1.NftablesFacts{} }, says(blocker)},
		{rule, "emptied in one family", iptablesMode, toIPTables, shared(kinds.nft6, unknownMode), silent},
		{rule, "emptied in both", iptablesMode, toIPTables, func(n *testNode) {
			shared(kinds.nft4, unknownMode)(n)
			shared(kinds.nft6, unknownMode)(n)
		}, open},
		{rule, "ipvs of the past in the other backend", iptablesMode, toIPTables, legacy(ipvsMode), silent},
		{rule, "the same mode in both backends", iptablesMode, toIPTables, legacy(iptablesMode), open},
		{rule, "to be restarted", iptablesMode, toNFTables, func(n *testNode) { n.proxy.ConfiguredMode = nftablesMode }, says(warning)},
		{rule, "configuration not known", iptablesMode, toNFTables, func(n *testNode) { n.proxy.ConfiguredMode = unknownMode }, silent},
		{rule, "none", noMode, toNone, func(n *testNode) { n.proxy.ConfiguredMode = ipvsMode }, silent},
		{rule, "kube-proxy unreadable", iptablesMode, toNFTables, cannotRead(kinds.kubeProxy), notRead},
		{rule, "chains unreadable", iptablesMode, toNFTables, cannotRead(kinds.nft4), notRead},
		{rule, "tables unreadable", nftablesMode, toNFTables, cannotRead(kinds.nftables), notRead},
		{rule, "ipvs unreadable", ipvsMode, toNFTables, cannotRead(kinds.ipvs), notRead},
	}
}

func syncCases() []ruleCase {
	const rule = "kube-proxy-not-in-sync"
	syncs := func(syncs ...*offrampv1.FamilySync) func(*testNode) {
		return func(n *testNode) { n.now.Syncs = syncs }
	}
	status := func(status uint32) func(*testNode) { return func(n *testNode) { n.now.HealthStatus = status } }
	return []ruleCase{
		{rule, "in sync", iptablesMode, toIPTables, asIs, silent},
		{rule, "just in sync", iptablesMode, toIPTables, syncs(&offrampv1.FamilySync{Family: 1, LastQueued: second(5), LastSync: second(5)}, synced(2)), silent},
		{rule, "nothing queued since", iptablesMode, toIPTables, syncs(&offrampv1.FamilySync{Family: 1, LastSync: second(5)}, synced(2)), silent},
		{rule, "behind in IPv6", nftablesMode, toNFTables, syncs(synced(1), &offrampv1.FamilySync{Family: 2, LastQueued: second(6), LastSync: second(5)}), says(blocker)},
		{rule, "no sync yet", iptablesMode, toIPTables, syncs(&offrampv1.FamilySync{Family: 1, LastQueued: second(6), Failures: 1}, synced(2)), says(blocker)},
		{rule, "no sync of a family", ipvsMode, toNFTables, syncs(synced(1)), says(blocker)},
		{rule, "metrics without families", ipvsMode, toNFTables, syncs(synced(0)), silent},
		{rule, "sick", iptablesMode, toNFTables, status(503), says(blocker)},
		{rule, "health does not answer", iptablesMode, toNFTables, status(0), open},
		{rule, "no metrics", iptablesMode, toNFTables, syncs(), open},
		{rule, "none", noMode, toNone, asIs, silent},
		{rule, "unreadable", iptablesMode, toIPTables, cannotRead(kinds.kubeProxy), notRead},
	}
}
