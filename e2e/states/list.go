package main

// state is one public node state of facts/field-reports.md that is read, rather than changed or judged: each has tests named
// TestStateNN… that put a node into it and compare what is read.
type state struct {
	number   int
	required bool
	what     string
}

// states is written by hand: a test that is renamed or lost shows as missing.
func states() []state {
	return []state{
		{1, false, "mode empty in the configuration"},
		{7, false, "sets of IPv6"},
		{9, true, "sysctls that stay"},
		{10, false, "kube-ipvs0 alone"},
		{11, true, "a listener of the host on a VIP"},
		{12, true, "the source of connections to a VIP"},
		{14, true, "a Service that is long gone"},
		{16, false, "kubelet's chains"},
		{17, false, "kube-router"},
		{20, true, "kube-proxy replaced"},
		{22, true, "kube-ipvs0 under nftables mode"},
		{23, true, "both backends of iptables in use"},
		{24, true, "looking creates no table"},
		{25, true, "looking loads no module"},
		{26, true, "a set held by a compat rule"},
		{27, true, "kubespray's files"},
		{28, true, "very many addresses"},
		{29, true, "kube-proxy's own probe"},
		{30, true, "configured is not running"},
		{31, false, "rules that are applied at boot"},
		{33, true, "established connections"},
		{34, true, "node-port traffic by address"},
		{35, true, "a newer nft's sets, versions of programs"},
		{36, true, "vendors' kernels"},
		{38, true, "a kernel without xtables"},
		{39, true, "IPv6 off"},
		{40, true, "very many elements"},
		{41, true, "node ports on localhost"},
		{42, true, "base chains that drop"},
		{44, true, "NodeLocal DNSCache and other programs"},
		{45, false, "Calico in eBPF mode"},
		{46, true, "portmap uses kube-proxy's chain"},
		{49, true, "keepalived"},
		{50, true, "the way to the API server"},
		{51, true, "odd IPVS tables"},
		{54, true, "k3s"},
		{55, true, "RKE2"},
	}
}
