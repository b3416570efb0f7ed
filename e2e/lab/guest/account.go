package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of the kernel's uapi/linux/netfilter/nfnetlink_acct.h and nfnetlink.h.
const (
	subsystemAccount = 7
	messageNew       = 0
	attributeName    = 1
)

// account makes accounting objects; one that is there already is left as it is.
func account(names []string) error {
	for _, name := range names {
		request := nl.NewNetlinkRequest(subsystemAccount<<8|messageNew, unix.NLM_F_CREATE|unix.NLM_F_ACK)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(nl.FAMILY_ALL), Version: nl.NFNETLINK_V0})
		request.AddData(nl.NewRtAttr(attributeName, nl.ZeroTerminated(name)))
		_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("adding the accounting object %s: %w", name, err)
		}
	}
	return nil
}
