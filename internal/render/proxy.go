package render

import (
	"fmt"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func (p *page) kernel(name string, facts *offrampv1.KernelFacts, moving *offrampv1.KernelVolatile) {
	booted := ""
	if moving.GetBootedAt() != nil {
		booted = "booted " + moment(moving.GetBootedAt())
	}
	p.line(2, "%s: present, %s", name, joinParts(
		strings.TrimSpace(Clean(facts.GetRelease())+" "+Clean(facts.GetMachine())), Clean(facts.GetOsPrettyName()), booted))
}

func (p *page) kubeProxy(name string, facts *offrampv1.KubeProxyFacts, moving *offrampv1.KubeProxyVolatile) {
	version := facts.GetVersion()
	if version == "" {
		version = "of unknown version"
	}
	p.line(2, "%s: present, %s", name, Clean(version))
	p.kubeProxyDetails(facts, moving)
}

func (p *page) kubeProxyDetails(facts *offrampv1.KubeProxyFacts, moving *offrampv1.KubeProxyVolatile) {
	p.line(6, "running mode: %s%s", Word(facts.GetRunningMode()), parentheses(Clean(facts.GetRunningModeSource())))
	p.line(6, "configured mode: %s", configured(facts))
	p.field(6, "asserted by a person that none runs", facts.GetAssertedNoneReason())
	if !facts.GetHostProcessesVisible() {
		p.line(6, "processes: those of the host are not in sight, so that one may be hidden (run with the host's PID namespace, or as root)")
	}
	for _, process := range facts.GetProcesses() {
		p.line(6, "process %d: %s", process.GetPid(), Clean(strings.Join(process.GetArgs(), " ")))
	}
	for _, endpoint := range facts.GetEndpoints() {
		p.line(6, "%s: %s", Clean(endpoint.GetUrl()), answer(endpoint))
	}
	for _, sync := range moving.GetSyncs() {
		p.line(6, "%s", syncText(sync))
	}
}

// configured says how a mode that is known came about.
func configured(facts *offrampv1.KubeProxyFacts) string {
	mode, origin := Word(facts.GetConfiguredMode()), Word(facts.GetConfiguredModeOrigin())
	if mode == "unknown" && origin == "unknown" {
		return mode + parentheses(Clean(facts.GetConfiguredModeSource()))
	}
	return mode + ", " + origin + parentheses(Clean(facts.GetConfiguredModeSource()))
}

func answer(endpoint *offrampv1.KubeProxyEndpoint) string {
	switch {
	case endpoint.GetStatus() == 0 && endpoint.GetError() == "":
		return "no answer"
	case endpoint.GetStatus() == 0:
		return "no answer" + parentheses(Clean(endpoint.GetError()))
	}
	return fmt.Sprintf("HTTP %d%s", endpoint.GetStatus(), parentheses(Clean(endpoint.GetError())))
}

func syncText(sync *offrampv1.FamilySync) string {
	family := familyName(sync.GetFamily())
	return fmt.Sprintf("%s rules: last sync %s, last change queued %s, %s", family, moment(sync.GetLastSync()),
		moment(sync.GetLastQueued()), count(sync.GetFailures(), "failure"))
}

func familyName(family offrampv1.AddressFamily) string {
	switch family {
	case offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4:
		return "IPv4"
	case offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6:
		return "IPv6"
	}
	return "all families"
}
