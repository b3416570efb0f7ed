package cleanup

import (
	"slices"
	"strings"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// sysctlDefaults are the kernel's own values of what ipvs mode sets and a clean-up may reset
// (Documentation/networking/ipvs-sysctl.rst, ip-sysctl.rst). ip_forward is not among them: every mode needs it.
func sysctlDefaults() map[string]string {
	return map[string]string{
		"net/ipv4/vs/conntrack":                 "0",
		"net/ipv4/vs/expire_nodest_conn":        "0",
		"net/ipv4/vs/expire_quiescent_template": "0",
		"net/ipv4/vs/conn_reuse_mode":           "1",
		"net/ipv4/conf/all/arp_ignore":          "0",
		"net/ipv4/conf/all/arp_announce":        "0",
	}
}

// planSysctls resets what still has the value that ipvs mode sets. Those of IPVS itself are left to whoever else uses
// IPVS, and those of ARP to whoever else wants them.
func (s *scope) planSysctls(list *operationList) {
	defaults := sysctlDefaults()
	for _, sysctl := range facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_SYSCTLS).GetStable().GetSysctls().GetValues() {
		to, known := defaults[sysctl.GetPath()]
		set := sysctl.GetIpvsModeValue() != "" && sysctl.GetValue() == sysctl.GetIpvsModeValue()
		if !known || !set || sysctl.GetValue() == to || s.sysctlWanted(sysctl.GetPath()) {
			continue
		}
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_SYSCTLS,
			Owner: string(kubeproxy.OwnerIPVS),
			Why:   "ipvs mode sets it, and nothing else on this node is known to want it",
			Change: &offrampv1.Operation_ResetSysctl{ResetSysctl: &offrampv1.ResetSysctl{
				Path: sysctl.GetPath(), From: sysctl.GetValue(), To: to,
			}},
		})
	}
}

// sysctlWanted reports whether somebody else may want a value. Where it could not be looked for them, somebody may: files
// decide about every value, processes about those of ARP.
func (s *scope) sysctlWanted(path string) bool {
	section := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_HOST)
	host := section.GetStable().GetHost()
	if host == nil || sectionProblem(section) != "" || fileWantsSysctl(host, path) {
		return true
	}
	if strings.HasPrefix(path, "net/ipv4/vs/") {
		return s.anyServerStays()
	}
	return !s.processesVisible() || slices.ContainsFunc(host.GetProgramsSeen(), wantsARP)
}

// fileWantsSysctl reports whether a file that is applied at boot names a parameter, or such files could not all be read.
func fileWantsSysctl(host *offrampv1.HostFacts, path string) bool {
	dotted := strings.ReplaceAll(path, "/", ".")
	return len(placesOfNames(host.GetUnreadable())) > 0 ||
		slices.ContainsFunc(host.GetFiles(), func(file *offrampv1.HostFile) bool {
			return file.GetKind() == "sysctl" &&
				(file.GetError() != "" || slices.Contains(file.GetNames(), dotted) || slices.Contains(file.GetNames(), path))
		})
}

// processesVisible reports whether the host's processes were in sight, so that a program that was not seen does not run.
func (s *scope) processesVisible() bool {
	proxy := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetStable().GetKubeProxy()
	host := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_HOST).GetStable().GetHost()
	unseen := slices.ContainsFunc(host.GetUnreadable(), func(place string) bool { return strings.HasPrefix(place, "processes:") })
	return proxy.GetHostProcessesVisible() && !unseen
}

// anyServerStays reports whether a virtual server is left after the plan, whoever made it.
func (s *scope) anyServerStays() bool {
	for i := range s.inv.Servers {
		if !s.goes(s.inv.Servers[i].Owner) {
			return true
		}
	}
	return false
}

// wantsARP tells the programs that want addresses not to be answered for on every link.
func wantsARP(program string) bool {
	return slices.Contains([]string{"metallb", "kube-vip", "keepalived", "kube-router"}, program)
}
