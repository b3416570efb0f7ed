package cleanup

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/netfilter/nfnetlink_acct.h.
const (
	nfnlSubsysAcct = 7
	nfnlAcctNew    = 0
	nfnlAcctDel    = 3
	nfacctName     = 1
)

// deleteAccounting deletes an nfacct object that no rule counts into any more; existed is false when it was gone. An empty
// name would stand for all objects, and is none.
func deleteAccounting(name string) (existed bool, err error) {
	if name == "" {
		return false, nil
	}
	request := nl.NewNetlinkRequest(nfnlSubsysAcct<<8|nfnlAcctDel, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(nfacctName, nl.ZeroTerminated(name)))
	_, err = request.Execute(unix.NETLINK_NETFILTER, 0)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		return false, nil // no such object, or none can be
	case errors.Is(err, unix.EBUSY):
		return true, fmt.Errorf("delete nfacct object %s: %w", name, errInUse)
	default:
		return true, fmt.Errorf("delete nfacct object %s: %w", name, err)
	}
}

// newAccounting makes an nfacct object; existed is true where there is one of that name, which stays as it is.
func newAccounting(name string) (existed bool, err error) {
	request := nl.NewNetlinkRequest(nfnlSubsysAcct<<8|nfnlAcctNew, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(nfacctName, nl.ZeroTerminated(name)))
	_, err = request.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.EEXIST) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("make nfacct object %s: %w", name, err)
	}
	return false, nil
}
