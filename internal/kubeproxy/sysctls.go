package kubeproxy

// Sysctl is a kernel parameter that ipvs mode sets at its start and nothing ever puts back.
type Sysctl struct {
	// Path below /proc/sys, such as "net/ipv4/vs/conntrack".
	Path string
	// Value that ipvs mode sets.
	Value string
	// StrictARP: set only with ipvs.strictARP.
	StrictARP bool
	// Trace: the kernel's default differs and only IPVS software sets it, so the value tells of ipvs mode in the past.
	Trace bool
}

// IPVSSysctls returns what ipvs mode sets on a kernel of this version (pkg/proxy/ipvs/proxier.go NewProxier).
// conn_reuse_mode is set to 0 from 4.1 to before 5.9 and left as it is from then on.
func IPVSSysctls(kernelMajor, kernelMinor uint32) []Sysctl {
	sysctls := []Sysctl{
		{Path: "net/ipv4/vs/conntrack", Value: "1", Trace: true},
		{Path: "net/ipv4/vs/expire_nodest_conn", Value: "1", Trace: true},
		{Path: "net/ipv4/vs/expire_quiescent_template", Value: "1", Trace: true},
		{Path: "net/ipv4/ip_forward", Value: "1"},
		{Path: "net/ipv4/conf/all/arp_ignore", Value: "1", StrictARP: true},
		{Path: "net/ipv4/conf/all/arp_announce", Value: "2", StrictARP: true},
	}
	if atLeast(kernelMajor, kernelMinor, 4, 1) && !atLeast(kernelMajor, kernelMinor, 5, 9) {
		sysctls = append(sysctls, Sysctl{Path: "net/ipv4/vs/conn_reuse_mode", Value: "0", Trace: true})
	}
	return sysctls
}

// NFTablesMinimumKernel is the first kernel on which nftables mode starts
// (pkg/util/kernel NFTablesKubeProxyKernelVersion).
func NFTablesMinimumKernel() (major, minor uint32) { return 5, 13 }

func atLeast(major, minor, wantMajor, wantMinor uint32) bool {
	return major > wantMajor || (major == wantMajor && minor >= wantMinor)
}
