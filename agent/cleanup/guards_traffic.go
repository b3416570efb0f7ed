package cleanup

import (
	"fmt"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// guardTraffic asks whose connections would be cut. Where apply is to wait for them, it does that itself.
func (s *scope) guardTraffic(found *findings) {
	if s.anyServerGoes() && s.options.Wait == 0 {
		found.raise(GuardConnections, s.connections()...)
	}
	if s.linkGoes && s.options.Wait == 0 && !s.options.CloseSockets {
		found.raise(GuardSockets, s.sockets()...)
	}
	if !s.linkGoes {
		return
	}
	var needing []string
	for i := range s.inv.Servers {
		if server := &s.inv.Servers[i]; s.needsLink(server) {
			needing = append(needing, serverName(server)+" ("+string(server.Owner)+": "+server.Reason+")")
		}
	}
	found.raise(GuardKeptServerNeedsLink, needing...)
}

func (s *scope) connections() []string {
	traffic := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_IPVS).GetVolatile().GetIpvs()
	if problem := traffic.GetTrafficError(); problem != "" {
		return []string{"they could not be counted: " + problem}
	}
	// Flows of UDP are not asked about: the kernel keeps each for 300 s after its last packet, so that on a node with DNS there
	// would always be some, and one look cannot tell which have ended. Who waits, waits for those that have not (udpFlows).
	count := traffic.GetEstablishedConnections()
	count -= min(count, traffic.GetUdpFlows())
	if count > s.options.MaxConnections {
		return []string{fmt.Sprintf("%d established connections, %d may be cut", count, s.options.MaxConnections)}
	}
	return nil
}

func (s *scope) sockets() []string {
	section := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_IPVS_LINK)
	if problem := section.GetStable().GetIpvsLink().GetSurroundingsError(); problem != "" {
		return []string{"they could not be listed: " + problem}
	}
	moving := section.GetVolatile().GetIpvsLink()
	if moving.GetSockets() == 0 {
		return nil
	}
	evidence := []string{fmt.Sprintf("%d sockets", moving.GetSockets())}
	for _, socket := range moving.GetSocketSamples() {
		evidence = append(evidence, socket.GetProtocol()+" "+socket.GetLocal()+" "+socket.GetRemote())
	}
	return evidence
}
