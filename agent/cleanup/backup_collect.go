package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// collectSaved puts together what a plan removes. What is gone by now is left out.
func collectSaved(ctx context.Context, plan *offrampv1.Plan, node *inventory.Node, tools legacyTools) (*saved, error) {
	everything := &saved{Rulesets: savedRules(plan, node)}
	for i := range everything.Rulesets {
		if err := nativeText(ctx, &everything.Rulesets[i], tools); err != nil {
			return nil, fmt.Errorf("save the rules of iptables-legacy: %w", err)
		}
	}
	var going []*inventory.VirtualServer
	servers := indexServers(node)
	for _, operation := range plan.GetOperations() {
		if server := servers.find(operation.GetDeleteVirtualServer()); server != nil {
			going = append(going, server)
		}
		if err := everything.add(ctx, operation, node); err != nil {
			return nil, fmt.Errorf("save %s: %w", describe(operation), err)
		}
	}
	everything.sortSets(node)
	if len(going) == 0 {
		return everything, nil
	}
	var err error
	everything.Servers, err = saveServers(tools.proc, going)
	return everything, err
}

func (s *saved) add(ctx context.Context, operation *offrampv1.Operation, node *inventory.Node) error {
	switch change := operation.GetChange().(type) {
	case *offrampv1.Operation_DeleteLink:
		s.Link = node.Link
	case *offrampv1.Operation_DestroySet:
		set, err := saveSet(change.DestroySet.GetName())
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		s.Sets = append(s.Sets, *set)
	case *offrampv1.Operation_DeleteTable:
		table, err := saveTable(ctx, nftTableFamily(change.DeleteTable.GetFamily()), change.DeleteTable.GetName())
		if err != nil {
			return err
		}
		s.Tables = append(s.Tables, *table)
	case *offrampv1.Operation_DeleteAccountingObject:
		s.Accounting = append(s.Accounting, change.DeleteAccountingObject.GetName())
	case *offrampv1.Operation_ResetSysctl:
		s.Sysctls = append(s.Sysctls, savedSysctl{change.ResetSysctl.GetPath(), change.ResetSysctl.GetFrom(), change.ResetSysctl.GetTo()})
	}
	return nil
}

// sortSets puts the sets into the order in which they were made, which is the order in which they are listed.
func (s *saved) sortSets(node *inventory.Node) {
	index := map[string]uint16{}
	for _, set := range node.Sets {
		index[set.Name] = set.Index
	}
	slices.SortStableFunc(s.Sets, func(a, b savedSet) int { return cmp.Compare(index[a.Name], index[b.Name]) })
}

// serverIndex finds virtual servers by protocol and address.
type serverIndex map[ipvsKey]*inventory.VirtualServer

func indexServers(node *inventory.Node) serverIndex {
	index := make(serverIndex, len(node.Servers))
	for i := range node.Servers {
		server := &node.Servers[i]
		if protocol, known := ipvsProtocol(server.Protocol); known {
			index[ipvsKey{protocol, server.Address}] = server
		}
	}
	return index
}

// find is nil for what is no virtual server, or none that was read.
func (s serverIndex) find(change *offrampv1.DeleteVirtualServer) *inventory.VirtualServer {
	protocol, known := ipvsProtocol(change.GetProtocol())
	address, err := netip.ParseAddr(change.GetAddress())
	if !known || err != nil || change.GetPort() > math.MaxUint16 {
		return nil
	}
	return s[ipvsKey{protocol, netip.AddrPortFrom(address, uint16(change.GetPort()))}] //nolint:gosec // checked above
}

// nftTableFamily is the number of a native table's family; kube-proxy has tables in two.
func nftTableFamily(name string) uint8 {
	if name == "ip6" {
		return nftFamily(kubeproxy.IPv6)
	}
	return nftFamily(kubeproxy.IPv4)
}
