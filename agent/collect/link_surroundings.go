package collect

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// readIPVSLink reports kube-ipvs0 and what its addresses do to the node.
func (c *scan) readIPVSLink(ctx context.Context) *offrampv1.Section {
	section := c.readNetworkSection(ctx, kindIPVSLink, ipvsLinkSection)
	network, _, err := c.readNetwork(ctx)
	content := section.GetStable().GetIpvsLink()
	if content == nil || err != nil {
		return section
	}
	moving := &offrampv1.IpvsLinkVolatile{}
	section.Volatile.Content = &offrampv1.SectionVolatile_IpvsLink{IpvsLink: moving}
	if err := readSurroundings(ctx, c.scanner.config.Host, network, content, moving); err != nil {
		content.SurroundingsError = shorten(err.Error())
	}
	return section
}

// readSurroundings reads routes, sockets and neighbours. What fails leaves out its own part alone.
func readSurroundings(ctx context.Context, host Host, n *network, content *offrampv1.IpvsLinkFacts, moving *offrampv1.IpvsLinkVolatile) error {
	mine := n.local().ipvs
	sockets, err := readLinkSockets(ctx, host, mine)
	if err == nil {
		moving.Sockets, moving.SocketSamples = sockets.count, reportSockets(sockets.samples)
		content.WildcardListeners = reportSockets(sockets.wildcards)
	}
	s, openErr := openSocket(unix.NETLINK_ROUTE)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer s.close()
	if strictErr := s.askStrictly(); strictErr != nil {
		return errors.Join(err, strictErr)
	}
	link := n.ipvsLinkIndex()
	routes, routesErr := readLocalRoutes(ctx, s, link)
	content.LocalRoutes, content.SelfSourceRoutes = routes.all, routes.selfSource
	claimed, claimedErr := readClaimed(ctx, s, link, mine)
	content.ClaimedByNeighbours = claimed
	return errors.Join(err, routesErr, claimedErr)
}

// ipvsLinkIndex is 0 when there is no such link.
func (n *network) ipvsLinkIndex() int {
	for index, link := range n.links {
		if link.isIPVSLink() {
			return index
		}
	}
	return 0
}
