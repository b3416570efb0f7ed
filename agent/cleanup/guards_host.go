package cleanup

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// guardHost asks whether the host's files name what would go.
func (s *scope) guardHost(found *findings) {
	section := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_HOST)
	host := section.GetStable().GetHost()
	unread := placesOfNames(host.GetUnreadable())
	if problem := sectionProblem(section); problem != "" {
		unread = append(unread, problem)
	}
	var cni, boot []string
	for _, file := range host.GetFiles() {
		names := s.namesThatGo(file.GetNames())
		switch {
		case file.GetError() != "":
			unread = append(unread, file.GetPath()+": "+file.GetError())
		case len(names) == 0:
		case file.GetKind() == "cni configuration":
			cni = append(cni, file.GetPath()+" names "+strings.Join(names, ", "))
		default:
			boot = append(boot, file.GetPath()+" names "+strings.Join(names, ", "))
		}
	}
	found.raise(GuardHostUnread, unread...)
	found.raise(GuardCNIConfiguration, cni...)
	found.raise(GuardBootFile, boot...)
	found.raise(GuardAPIServer, s.apiServers()...)
}

// placesOfNames are the places that could not be looked at and where a file may name what goes. What else of a host may be
// out of sight (versions, the kernel's modules, numbers) says nothing of that.
func placesOfNames(unread []string) []string {
	if len(unread) >= maxUnread {
		return unread // there may be more than are told
	}
	var places []string
	for _, place := range unread {
		harmless := slices.ContainsFunc(harmlessPlaces(), func(head string) bool { return strings.HasPrefix(place, head) })
		if !harmless {
			places = append(places, place)
		}
	}
	return places
}

// maxUnread is how many places HostFacts.unreadable has at most.
const maxUnread = 20

// harmlessPlaces are the heads of what collect says could not be looked at, of which nothing depends here.
func harmlessPlaces() []string {
	return []string{
		"/lib/modules", "/usr/lib/modules", "/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/etc/ufw", "/var/lib/dpkg",
		"/lib/apk", "versions of programs:", "nf_conntrack_max:", "nf_conntrack_count:", "IPv6:", "local ports:", "processes:",
	}
}

// namesThatGo are the chains and sets among names that the plan removes.
func (s *scope) namesThatGo(names []string) []string {
	var going []string
	for _, name := range names {
		chain := slices.ContainsFunc(s.rulesets, func(r *rulesetScope) bool { return r.anyChainGoes(name) })
		if chain || s.sets[name] {
			going = append(going, name)
		}
	}
	return going
}

func (r *rulesetScope) anyChainGoes(name string) bool {
	for key := range r.chains {
		if key.chain == name {
			return true
		}
	}
	return false
}

// apiServers lists the kubeconfig files whose server is a virtual server that goes.
func (s *scope) apiServers() []string {
	var evidence []string
	for _, api := range s.inv.APIServers {
		address, err := netip.ParseAddr(api.Host)
		if err != nil {
			continue // a name: where it leads is not the kernel's to tell
		}
		at := netip.AddrPortFrom(address.Unmap(), api.Port)
		serves := func(server inventory.VirtualServer) bool {
			return server.Protocol == "TCP" && server.Address == at && s.goes(server.Owner)
		}
		if slices.ContainsFunc(s.inv.Servers, serves) && !isKubernetesService(at) {
			evidence = append(evidence, fmt.Sprintf("%s: %s", api.File, at))
		}
	}
	return evidence
}

// isKubernetesService tells the ordinary Service of the API server: the first address of the range of Services, port 443
// (pkg/controlplane/instance.go). Every mode serves that one.
func isKubernetesService(at netip.AddrPort) bool {
	raw := at.Addr().AsSlice()
	return at.Port() == 443 && raw[len(raw)-1] == 1
}

// sectionProblem says why nothing may be concluded from a section, "" when it may.
func sectionProblem(section *offrampv1.Section) string {
	stable := section.GetStable()
	switch stable.GetState() {
	case offrampv1.SectionState_SECTION_STATE_ABSENT, offrampv1.SectionState_SECTION_STATE_EMPTY,
		offrampv1.SectionState_SECTION_STATE_PRESENT:
		return ""
	case offrampv1.SectionState_SECTION_STATE_UNSPECIFIED:
		return "it was not reported"
	default:
		return stable.GetState().String() + ": " + stable.GetError()
	}
}
