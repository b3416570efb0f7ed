package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// each does operations that stand alone, one by one. It goes on after one that fails.
func (r *run) each(ctx context.Context, operations []*offrampv1.Operation, results []*offrampv1.OperationResult) {
	for i, operation := range operations {
		var existed bool
		var err error
		switch change := operation.GetChange().(type) {
		case *offrampv1.Operation_SetRouteSource:
			existed, err = r.setSource(change.SetRouteSource)
		case *offrampv1.Operation_DeleteVirtualServer:
			var table ipvsTable
			if table, err = r.recentTable(); err == nil {
				existed, err = r.deleteServer(change.DeleteVirtualServer, table)
			}
		case *offrampv1.Operation_DeleteLink:
			existed, err = r.deleteLink(change.DeleteLink)
		case *offrampv1.Operation_DestroySet:
			existed, err = r.destroySet(ctx, change.DestroySet)
		case *offrampv1.Operation_DeleteAccountingObject:
			existed, err = deleteAccounting(change.DeleteAccountingObject.GetName())
		case *offrampv1.Operation_DeleteRoute:
			existed, err = r.deleteRoute(change.DeleteRoute)
		case *offrampv1.Operation_ResetSysctl:
			existed, err = resetSysctl(r.config.Proc, change.ResetSysctl.GetPath(), change.ResetSysctl.GetFrom(), change.ResetSysctl.GetTo())
		default:
			err = errors.New(describe(operation))
		}
		settle(results[i], existed, err)
	}
}

// tableAge is how old a look at the IPVS table may be by which a virtual server is deleted. With 10,000 of them a look costs as
// much as hundreds of deletions.
const tableAge = 2 * time.Second

// recentTable is the IPVS table as of a moment ago: what has changed hands since the plan was made must stay.
func (r *run) recentTable() (ipvsTable, error) {
	if r.table != nil && r.config.Now().Sub(r.tableAt) < tableAge {
		return r.table, nil
	}
	table, err := readIPVSTable(r.config.Proc)
	if err == nil {
		r.table, r.tableAt = table, r.config.Now()
	}
	return table, err
}

// servers finds the virtual servers of the latest inventory.
func (r *run) servers() serverIndex {
	if r.indexed != r.node {
		r.index, r.indexed = indexServers(r.node), r.node
	}
	return r.index
}

// settle notes how an operation ended. Verification has the last word.
func settle(result *offrampv1.OperationResult, existed bool, err error) {
	switch {
	case isGone(err):
		setResult(result, gone, nil)
	case err != nil:
		setResult(result, remains, err)
	case existed:
		setResult(result, done, nil)
	default:
		setResult(result, gone, nil)
	}
}

func (r *run) setSource(change *offrampv1.SetRouteSource) (bool, error) {
	vip, err := netip.ParseAddr(change.GetAddress())
	if err != nil {
		return false, err
	}
	source, err := netip.ParseAddr(change.GetSource())
	if err != nil {
		return false, err
	}
	sources, err := r.openSources()
	if err != nil {
		return false, err
	}
	return true, sources.set(vip, source)
}

var errOtherServer = errors.New("its real servers are no longer those that it had when the plan was made")

// deleteServer deletes a virtual server that is still what the plan means: IPVS says of no server whose it is, so one that
// somebody has made in its place is told by its real servers alone.
func (r *run) deleteServer(change *offrampv1.DeleteVirtualServer, table ipvsTable) (bool, error) {
	server := r.servers().find(change)
	protocol, known := ipvsProtocol(change.GetProtocol())
	if server == nil || !known || server.Owner != kubeproxy.OwnerIPVS {
		return true, errNotInInventory
	}
	key := ipvsKey{protocol, server.Address}
	if _, found := table[key]; !found {
		return false, nil
	}
	if !table.unchanged(server, key) {
		return true, fmt.Errorf("delete virtual server %s: %w", key, errOtherServer)
	}
	handle, err := r.openIPVS(r.config.Proc)
	if err != nil {
		return true, err
	}
	err = handle.deleteService(key)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("delete virtual server %s: %w", key, err)
	}
	return true, nil
}

func (r *run) deleteLink(change *offrampv1.DeleteLink) (bool, error) {
	if r.node.Link == nil || change.GetName() != r.node.Link.Name {
		return true, errNotInInventory
	}
	handle, err := r.openRoutes()
	if err != nil {
		return true, err
	}
	return deleteIPVSLink(handle, r.node.Link.Index)
}

func (r *run) destroySet(ctx context.Context, change *offrampv1.DestroySet) (bool, error) {
	sets, err := r.openSets()
	if err != nil {
		return true, err
	}
	return sets.destroy(ctx, change.GetName())
}

func (r *run) deleteRoute(change *offrampv1.DeleteRoute) (bool, error) {
	vip, err := netip.ParseAddr(change.GetAddress())
	if err != nil {
		return false, err
	}
	handle, err := r.openRoutes()
	if err != nil {
		return false, err
	}
	lo, err := handle.LinkByName(loopback)
	if err != nil {
		return false, fmt.Errorf("look for lo: %w", err)
	}
	s := &sources{handle: handle, lo: lo.Attrs().Index}
	return true, s.deleteOwn(vip)
}
