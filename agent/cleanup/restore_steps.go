package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// restoration is one restore of one backup. Not for concurrent use.
type restoration struct {
	config  ExecutorConfig
	tools   legacyTools
	saved   *saved
	look    func(context.Context) (*offrampv1.Plan, *Reading, error)
	node    *inventory.Node
	result  *RestoreResult
	journal *journal
	origin  Origin
}

// all brings back class by class. An error is the journal's, or that the node cannot be looked at any more.
func (r *restoration) all(ctx context.Context) error {
	for _, step := range []struct {
		class restoreClass
		some  bool
		do    func(context.Context) error
	}{
		{restoreAccounting, len(r.saved.Accounting) > 0, r.accounting},
		{restoreSets, len(r.saved.Sets) > 0, r.sets},
		{restoreChains, len(r.saved.Rulesets) > 0, r.chains},
		{restoreTables, len(r.saved.Tables) > 0, r.tables},
		{restoreServers, len(r.saved.Servers) > 0, r.servers},
		{restoreLink, r.saved.Link != nil, r.link},
		{restoreSysctls, len(r.saved.Sysctls) > 0, r.sysctls},
	} {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("it was told to stop: %w", err)
		}
		if !step.some {
			continue
		}
		if !restoreAllows(step.class, r.result.Running) {
			r.item(string(step.class), NotAllowed, "not under the mode that runs; by hand, see docs/restore.md")
			continue
		}
		if err := r.journal.add(&Record{Kind: RecordNote, Text: "about to restore " + string(step.class)}); err != nil {
			return err
		}
		before := len(r.result.Items)
		if err := step.do(ctx); err != nil {
			return err
		}
		if err := r.noteItems(before); err != nil {
			return err
		}
	}
	return nil
}

func (r *restoration) noteItems(from int) error {
	counts := map[RestoreOutcome]int{}
	for _, item := range r.result.Items[from:] {
		counts[item.Outcome]++
	}
	return r.journal.add(&Record{Kind: RecordNote, Text: fmt.Sprintf(
		"%d restored, %d kept, %d not allowed, %d failed", counts[Restored], counts[Kept], counts[NotAllowed], counts[Failed])})
}

func (r *restoration) item(what string, outcome RestoreOutcome, why string) {
	r.result.Items = append(r.result.Items, RestoreItem{what, outcome, why})
}

// ended notes how one thing ended that is left alone where it exists.
func (r *restoration) ended(what string, existed bool, err error) {
	switch {
	case err != nil:
		r.item(what, Failed, err.Error())
	case existed:
		r.item(what, Kept, "there is one")
	default:
		r.item(what, Restored, "")
	}
}

func (r *restoration) accounting(context.Context) error {
	for _, name := range r.saved.Accounting {
		existed, err := newAccounting(name)
		r.ended("nfacct object "+name, existed, err)
	}
	return nil
}

// sets brings back the ipsets, and learns the numbers that the kernel now knows them by.
func (r *restoration) sets(ctx context.Context) error {
	for i := range r.saved.Sets {
		existed, err := r.saved.Sets[i].restore()
		r.ended("ipset "+r.saved.Sets[i].Name, existed, err)
	}
	_, reading, err := r.look(ctx)
	if err != nil {
		return fmt.Errorf("look at the node again: %w", err)
	}
	r.node = reading.Inventory
	return nil
}

// tables brings back the tables of nftables mode, each in a transaction.
func (r *restoration) tables(ctx context.Context) error {
	for i := range r.saved.Tables {
		table := &r.saved.Tables[i]
		existed, err := hasNFTTable(table.Family, table.Name)
		if err == nil && !existed {
			batch := newNFTBatch(0)
			table.write(batch)
			err = batch.commit(ctx)
		}
		r.ended(fmt.Sprintf("table %s of family %d", table.Name, table.Family), existed, err)
	}
	return nil
}

func (r *restoration) servers(context.Context) error {
	handle, err := openIPVS(r.config.Proc)
	if err != nil {
		r.item(string(restoreServers), Failed, err.Error())
		return nil
	}
	defer handle.close()
	for i := range r.saved.Servers {
		server := &r.saved.Servers[i]
		key := ipvsKey{server.Protocol, server.Address}
		existed, err := restoreServer(handle, key, server)
		r.ended("virtual server "+key.String(), existed, err)
	}
	return nil
}

func restoreServer(handle *ipvsHandle, key ipvsKey, server *savedServer) (existed bool, err error) {
	err = handle.newService(server)
	if errors.Is(err, unix.EEXIST) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for i := range server.Reals {
		if realErr := handle.newReal(key, &server.Reals[i]); !errors.Is(realErr, unix.EEXIST) {
			err = errors.Join(err, realErr)
		}
	}
	return false, err
}

// link makes the link anew with its addresses, but for those that another link has by now.
func (r *restoration) link(context.Context) error {
	handle, err := openRoute()
	if err != nil {
		return err
	}
	defer handle.Close()
	name := "link " + r.saved.Link.Name
	err = handle.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: r.saved.Link.Name}})
	r.ended(name, errors.Is(err, unix.EEXIST), notExist(err))
	if err != nil {
		return nil
	}
	link, err := handle.LinkByName(r.saved.Link.Name)
	if err != nil {
		r.item(name, Failed, err.Error())
		return nil
	}
	elsewhere := map[netip.Addr]bool{}
	for _, address := range r.node.Addresses {
		elsewhere[address.Prefix.Addr()] = true
	}
	for _, prefix := range inMakingOrder(r.saved.Link.Addresses) {
		if elsewhere[prefix.Addr()] {
			r.item("address "+prefix.String(), Kept, "another link has it")
			continue
		}
		whole := hostNet(prefix.Addr())
		whole.Mask = net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())
		address := &netlink.Addr{IPNet: whole}
		if err := handle.AddrAdd(link, address); err != nil {
			r.item("address "+prefix.String(), Failed, err.Error())
		}
	}
	return nil
}

// notExist takes out of an error that something is there already.
func notExist(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (r *restoration) sysctls(context.Context) error {
	for _, sysctl := range r.saved.Sysctls {
		_, err := resetSysctl(r.config.Proc, sysctl.Path, sysctl.To, sysctl.From)
		r.ended("sysctl "+sysctl.Path, errors.Is(err, errOtherValue), notOther(err))
	}
	return nil
}

func notOther(err error) error {
	if errors.Is(err, errOtherValue) {
		return nil
	}
	return err
}
