package readiness_test

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

func hostCases() []ruleCase {
	feature := func(state offrampv1.FeatureState, mode offrampv1.ProxyMode) func(*testNode) {
		return func(n *testNode) {
			n.host.Features = []*offrampv1.KernelFeature{{Name: "xt_statistic", State: state, NeededBy: []offrampv1.ProxyMode{mode}}}
		}
	}
	const missing, unknown, loadable = offrampv1.FeatureState_FEATURE_STATE_MISSING, offrampv1.FeatureState_FEATURE_STATE_UNKNOWN, offrampv1.FeatureState_FEATURE_STATE_LOADABLE
	newer := func(owner string) func(*testNode) {
		return func(n *testNode) {
			n.nft.Samples = append(n.nft.Samples, &offrampv1.NftTable{Family: "inet", Name: "mine", Owner: owner, NewerFeatures: []string{"typeof key"}})
		}
	}
	policy := func(chain string) func(*testNode) {
		return func(n *testNode) { n.tables[kinds.nft4].DropPolicies = []string{chain} }
	}
	program := func(name string) func(*testNode) {
		return func(n *testNode) { n.host.ProgramsSeen = []string{name} }
	}
	file := func(kind, name string) func(*testNode) {
		return func(n *testNode) {
			n.host.Files = []*offrampv1.HostFile{{Path: "/etc/x", Kind: kind, Names: []string{name}}}
		}
	}
	return []ruleCase{
		{"kernel-feature-missing", "xtables, to iptables", ipvsMode, toIPTables, feature(missing, iptablesMode), says(blocker)},
		{"kernel-feature-missing", "xtables, to nftables", ipvsMode, toNFTables, feature(missing, iptablesMode), silent},
		{"kernel-feature-missing", "nftables, to nftables", ipvsMode, toNFTables, feature(missing, nftablesMode), says(blocker)},
		{"kernel-feature-missing", "runs all the same", iptablesMode, toIPTables, feature(missing, iptablesMode), says(warning)},
		{"kernel-feature-missing", "not in sight", ipvsMode, toNFTables, feature(unknown, nftablesMode), says(info)},
		{"kernel-feature-missing", "not in sight, but runs", nftablesMode, toNFTables, feature(unknown, nftablesMode), silent},
		{"kernel-feature-missing", "can be loaded", ipvsMode, toNFTables, feature(loadable, nftablesMode), silent},
		{"kernel-feature-missing", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.host), notRead},
		{"nft-version-clash", "somebody's", ipvsMode, toNFTables, newer("foreign:firewalld"), says(warning)},
		{"nft-version-clash", "nobody's in particular", ipvsMode, toNFTables, newer("unknown"), says(warning)},
		{"nft-version-clash", "kube-proxy's own", nftablesMode, toNFTables, newer("kube-proxy/nftables"), silent},
		{"nft-version-clash", "to iptables", ipvsMode, toIPTables, newer("foreign:firewalld"), silent},
		{"nft-version-clash", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.nftables), notRead},
		{"host-firewall-drops", "INPUT", ipvsMode, toNFTables, policy("filter INPUT"), says(warning)},
		{"host-firewall-drops", "FORWARD, there already", nftablesMode, toNFTables, policy("filter FORWARD"), says(warning)},
		{"host-firewall-drops", "OUTPUT", ipvsMode, toNFTables, policy("filter OUTPUT"), silent},
		{"host-firewall-drops", "to iptables", ipvsMode, toIPTables, policy("filter INPUT"), silent},
		{"host-firewall-drops", "base chain", ipvsMode, toNFTables, func(n *testNode) { n.nft.DropChains = []string{"inet f input"} }, says(warning)},
		{"host-firewall-drops", "firewalld", ipvsMode, toNFTables, program("firewalld"), says(warning)},
		{"host-firewall-drops", "docker", ipvsMode, toNFTables, program("docker"), silent},
		{"host-firewall-drops", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.legacy4), notRead},
		{"boot-file-names-objects", "rules", ipvsMode, toNFTables, file("iptables rules", "KUBE-SERVICES"), says(warning)},
		{"boot-file-names-objects", "sets", nftablesMode, toNFTables, file("ipset sets", "KUBE-CLUSTER-IP"), says(warning)},
		{"boot-file-names-objects", "modules", nftablesMode, toNFTables, file("modules-load", "ip_vs"), says(info)},
		{"boot-file-names-objects", "CNI", nftablesMode, toNFTables, file("cni configuration", "KUBE-MARK-MASQ"), silent},
		{"boot-file-names-objects", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.host), notRead},
		{"conntrack-nearly-full", "800 of 1000", ipvsMode, toNFTables, func(n *testNode) { n.tracked = 800 }, says(warning)},
		{"conntrack-nearly-full", "799 of 1000", ipvsMode, toNFTables, func(n *testNode) { n.tracked = 799 }, silent},
		{"conntrack-nearly-full", "no limit known", ipvsMode, toNFTables, func(n *testNode) { n.host.ConntrackMax = 0 }, silent},
		{"conntrack-nearly-full", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.host), notRead},
		{"node-ports-in-ephemeral-range", "from 1024", ipvsMode, toNFTables, func(n *testNode) { n.host.LocalPortMin = 1024 }, says(info)},
		{"node-ports-in-ephemeral-range", "reserved", ipvsMode, toNFTables, func(n *testNode) {
			n.host.LocalPortMin, n.host.ReservedPorts = 1024, "30000-32767"
		}, silent},
		{"node-ports-in-ephemeral-range", "the kernel's own", ipvsMode, toNFTables, asIs, silent},
		{"node-ports-in-ephemeral-range", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.host), notRead},
		{"node-local-dns", "on ipvs", ipvsMode, toNFTables, program("nodelocaldns"), says(info)},
		{"node-local-dns", "moved", nftablesMode, toNFTables, program("nodelocaldns"), silent},
		{"node-local-dns", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.host), notRead},
		{"both-iptables-backends", "kube-proxy's in both", iptablesMode, toIPTables, func(n *testNode) {
			n.fill(kinds.legacy4, ipvsMode, "kube-proxy/ipvs")
			n.rules(kinds.legacy4, 9)
			n.rules(kinds.nft4, 9)
		}, says(warning)},
		{"both-iptables-backends", "somebody else's in one", iptablesMode, toIPTables, func(n *testNode) {
			n.tables[kinds.legacy4] = &offrampv1.IptablesFacts{}
			n.rules(kinds.legacy4, 9)
			n.rules(kinds.nft4, 9)
		}, says(info)},
		{"both-iptables-backends", "empty tables", iptablesMode, toIPTables, func(n *testNode) {
			n.tables[kinds.legacy4] = &offrampv1.IptablesFacts{}
			n.rules(kinds.legacy4, 0)
			n.rules(kinds.nft4, 9)
		}, silent},
		{"both-iptables-backends", "unreadable", iptablesMode, toIPTables, cannotRead(kinds.legacy4), notRead},
	}
}

func (n *testNode) rules(kind offrampv1.SectionKind, rules uint64) {
	n.tables[kind].Tables = []*offrampv1.IptablesTable{{Name: "nat", Chains: 5, Rules: rules}}
}

func trafficCases() []ruleCase {
	nodePort := func(address string, connections uint64) func(*testNode) {
		return func(n *testNode) {
			n.addresses.Samples = []*offrampv1.NodeAddress{{Address: "192.0.2.10", Primary: true}, {Address: "198.51.100.7"}}
			n.traffic.NodePorts = []*offrampv1.NodePortTraffic{{Protocol: "TCP", Address: address, Port: 30080, Connections: connections, Clients: []string{"203.0.113.4"}}}
		}
	}
	exposed := func(owner string) func(*testNode) {
		return func(n *testNode) {
			n.link = &offrampv1.IpvsLinkFacts{Owner: owner, Ipv4Addresses: 3, WildcardListeners: []*offrampv1.HostSocket{{Protocol: "tcp", Local: "0.0.0.0:22"}}}
		}
	}
	control := func(owner string, port uint32) func(*testNode) {
		return func(n *testNode) {
			n.ipvs.Samples = append(n.ipvs.Samples, &offrampv1.VirtualServer{Protocol: "TCP", Address: "10.103.97.2", Port: port, Owner: owner})
		}
	}
	kernel := func(minor uint32, liberal bool) func(*testNode) {
		return func(n *testNode) {
			n.kernel = &offrampv1.KernelFacts{Release: "5.15.0", Major: 5, Minor: minor}
			n.proxy.Settings = &offrampv1.KubeProxySettings{Source: "/configz", ConntrackTcpBeLiberal: liberal}
		}
	}
	switched := func(booted int64) func(*testNode) {
		return func(n *testNode) {
			n.history.ModeChanges = []*offrampv1.ModeChange{{At: second(100), From: ipvsMode, To: nftablesMode}}
			n.booted = booted
			n.addSets("kube-proxy/ipvs", 17, 3)
		}
	}
	failed := func(last int64) func(*testNode) {
		return func(n *testNode) {
			n.now.Syncs[0] = &offrampv1.FamilySync{Family: 1, LastSync: second(last), LastQueued: second(10), Failures: 3}
		}
	}
	return []ruleCase{
		{"node-ports-on-other-addresses", "secondary", ipvsMode, toNFTables, nodePort("198.51.100.7", 4), says(warning)},
		{"node-ports-on-other-addresses", "primary", ipvsMode, toNFTables, nodePort("192.0.2.10", 4), silent},
		{"node-ports-on-other-addresses", "no traffic", ipvsMode, toNFTables, nodePort("198.51.100.7", 0), silent},
		{"node-ports-on-other-addresses", "to iptables", ipvsMode, toIPTables, nodePort("198.51.100.7", 4), silent},
		{"node-ports-on-other-addresses", "configured", ipvsMode, toNFTables, func(n *testNode) {
			nodePort("198.51.100.7", 4)(n)
			n.proxy.Settings = &offrampv1.KubeProxySettings{NodePortAddresses: []string{"0.0.0.0/0"}}
		}, silent},
		{"node-ports-on-other-addresses", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.ipvs), notRead},
		{"host-ports-exposed", "ssh", nftablesMode, toNFTables, exposed("kube-proxy/ipvs"), says(warning)},
		{"host-ports-exposed", "in use", ipvsMode, toNFTables, exposed("kube-proxy/ipvs"), silent},
		{"host-ports-exposed", "somebody else's link", nftablesMode, toNFTables, exposed("foreign:unidentified"), silent},
		{"host-ports-exposed", "unreadable", nftablesMode, toNFTables, cannotRead(kinds.link), notRead},
		{"api-server-through-ipvs", "lvscare", ipvsMode, toNFTables, control("foreign:unidentified", 6443), says(blocker)},
		{"api-server-through-ipvs", "nobody knows whose", ipvsMode, toNFTables, control("unknown", 6443), says(blocker)},
		{"api-server-through-ipvs", "there already", nftablesMode, toNFTables, control("foreign:unidentified", 6443), says(warning)},
		{"api-server-through-ipvs", "to iptables", ipvsMode, toIPTables, control("foreign:unidentified", 6443), says(warning)},
		{"api-server-through-ipvs", "a Service", ipvsMode, toNFTables, control("kube-proxy/ipvs", 6443), silent},
		{"api-server-through-ipvs", "another port", ipvsMode, toNFTables, control("foreign:unidentified", 80), silent},
		{"api-server-through-ipvs", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.ipvs), notRead},
		{"conntrack-resets", "5.15", ipvsMode, toNFTables, kernel(15, false), says(warning)},
		{"conntrack-resets", "5.15, liberal", ipvsMode, toNFTables, kernel(15, true), silent},
		{"conntrack-resets", "5.15, settings not seen", ipvsMode, toNFTables, func(n *testNode) {
			kernel(15, false)(n)
			n.proxy.Settings = nil
		}, says(info)},
		{"conntrack-resets", "5.15 to iptables", ipvsMode, toIPTables, kernel(15, false), silent},
		{"conntrack-resets", "6.1", ipvsMode, toNFTables, asIs, silent},
		{"conntrack-resets", "unreadable", ipvsMode, toNFTables, cannotRead(kinds.kernel), notRead},
		{"sync-failures", "and well again", iptablesMode, toIPTables, failed(11), says(warning)},
		{"sync-failures", "and still behind", iptablesMode, toIPTables, failed(9), silent},
		{"sync-failures", "none", iptablesMode, toIPTables, asIs, silent},
		{"sync-failures", "unreadable", iptablesMode, toIPTables, cannotRead(kinds.kubeProxy), notRead},
		{"not-rebooted-since-switch", "booted before", nftablesMode, toNFTables, switched(50), says(info)},
		{"not-rebooted-since-switch", "booted after", nftablesMode, toNFTables, switched(150), silent},
		{"not-rebooted-since-switch", "nothing left", nftablesMode, toNFTables, asIs, silent},
		{"not-rebooted-since-switch", "unreadable", nftablesMode, toNFTables, cannotRead(kinds.history), notRead},
	}
}

func configCases() []ruleCase {
	settings := func(s *offrampv1.KubeProxySettings) func(*testNode) {
		if s.IptablesMasqueradeBit == 0 {
			s.IptablesMasqueradeBit = -1
		}
		if s.NftablesMasqueradeBit == 0 {
			s.NftablesMasqueradeBit = -1
		}
		return func(n *testNode) { n.proxy.Settings = s }
	}
	origin := func(origin offrampv1.ModeOrigin) func(*testNode) {
		return func(n *testNode) { n.proxy.ConfiguredModeOrigin = origin }
	}
	configured := func(mode offrampv1.ProxyMode) func(*testNode) {
		return func(n *testNode) { n.proxy.ConfiguredMode = mode }
	}
	localhost := func(n *testNode) { n.now.LocalhostNodeportPackets = new(uint64); *n.now.LocalhostNodeportPackets = 7 }
	unreadable := cannotRead(kinds.kubeProxy)
	const defaulted, explicit = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED, offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT
	dual := []string{"10.244.0.0/16", "fd00:244::/64"}
	return []ruleCase{
		{"mode-not-explicit", "defaulted", iptablesMode, toNFTables, origin(defaulted), says(warning)},
		{"mode-not-explicit", "explicit", iptablesMode, toNFTables, origin(explicit), silent},
		{"mode-not-explicit", "not known", iptablesMode, toNFTables, origin(offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN), silent},
		{"mode-not-explicit", "unreadable", iptablesMode, toNFTables, unreadable, notRead},
		{"ipvs-configured", "for the next start", iptablesMode, toNFTables, configured(ipvsMode), says(warning)},
		{"ipvs-configured", "and runs", ipvsMode, toNFTables, asIs, silent},
		{"ipvs-configured", "to ipvs", iptablesMode, toIPVS, configured(ipvsMode), silent},
		{"ipvs-configured", "other", iptablesMode, toNFTables, asIs, silent},
		{"ipvs-configured", "unreadable", iptablesMode, toNFTables, unreadable, notRead},
		{"ipvs-gate-set", "true", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{FeatureGates: []string{"KubeProxyIPVS=true"}}), says(warning)},
		{"ipvs-gate-set", "another", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{FeatureGates: []string{"KubeProxyIPVSx=true"}}), silent},
		{"ipvs-gate-set", "unreadable", ipvsMode, toNFTables, unreadable, notRead},
		{"dead-ipvs-settings", "strictARP", nftablesMode, toNFTables, settings(&offrampv1.KubeProxySettings{IpvsStrictArp: true}), says(info)},
		{"dead-ipvs-settings", "scheduler", nftablesMode, toNFTables, settings(&offrampv1.KubeProxySettings{IpvsScheduler: "lc"}), says(info)},
		{"dead-ipvs-settings", "in use", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IpvsStrictArp: true}), silent},
		{"dead-ipvs-settings", "none", nftablesMode, toNFTables, settings(&offrampv1.KubeProxySettings{}), silent},
		{"dead-ipvs-settings", "unreadable", nftablesMode, toNFTables, unreadable, notRead},
		{"settings-nftables-ignores", "masqueradeAll", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IptablesMasqueradeAll: true}), says(warning)},
		{"settings-nftables-ignores", "copied", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IptablesMasqueradeAll: true, NftablesMasqueradeAll: true}), silent},
		{"settings-nftables-ignores", "bit", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IptablesMasqueradeBit: 15}), says(warning)},
		{"settings-nftables-ignores", "the default said", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IptablesMasqueradeBit: 14}), silent},
		{"settings-nftables-ignores", "to iptables", ipvsMode, toIPTables, settings(&offrampv1.KubeProxySettings{IptablesMasqueradeAll: true}), silent},
		{"settings-nftables-ignores", "unreadable", ipvsMode, toNFTables, unreadable, notRead},
		{"node-port-addresses-implicit", "empty", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{}), says(info)},
		{"node-port-addresses-implicit", "one family", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{NodePortAddresses: []string{"192.0.2.0/24"}, ClusterCidrs: dual}), says(warning)},
		{"node-port-addresses-implicit", "both", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{NodePortAddresses: []string{"192.0.2.0/24", "2001:db8::/64"}, ClusterCidrs: dual}), silent},
		{"node-port-addresses-implicit", "keyword", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{NodePortAddresses: []string{"primary"}, ClusterCidrs: dual}), silent},
		{"node-port-addresses-implicit", "moved", nftablesMode, toNFTables, settings(&offrampv1.KubeProxySettings{}), silent},
		{"node-port-addresses-implicit", "unreadable", ipvsMode, toNFTables, unreadable, notRead},
		{"scheduler-without-successor", "lc", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IpvsScheduler: "lc"}), says(info)},
		{"scheduler-without-successor", "rr", ipvsMode, toNFTables, settings(&offrampv1.KubeProxySettings{IpvsScheduler: "rr"}), silent},
		{"scheduler-without-successor", "back", ipvsMode, toIPVS, settings(&offrampv1.KubeProxySettings{IpvsScheduler: "lc"}), silent},
		{"scheduler-without-successor", "unreadable", ipvsMode, toNFTables, unreadable, notRead},
		{"localhost-node-ports", "from iptables", iptablesMode, toNFTables, localhost, says(warning)},
		{"localhost-node-ports", "from ipvs it is no regression", ipvsMode, toNFTables, localhost, silent},
		{"localhost-node-ports", "not used", iptablesMode, toNFTables, asIs, silent},
		{"localhost-node-ports", "unreadable", iptablesMode, toNFTables, unreadable, notRead},
	}
}
