package main

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of the kernel's uapi/linux/netfilter/nfnetlink_acct.h and nfnetlink.h.
const (
	subsystemAccount = 7
	messageGet       = 1
	attributeName    = 1
	attributePackets = 2
	attributeBytes   = 3
)

// accounts prints nfnetlink's accounting objects as nfacct does, a program that not every host has. Asking loads the
// kernel's module where it is none.
func accounts(out io.Writer) error {
	request := nl.NewNetlinkRequest(subsystemAccount<<8|messageGet, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(nl.FAMILY_ALL), Version: nl.NFNETLINK_V0})
	messages, err := request.Execute(unix.NETLINK_NETFILTER, subsystemAccount<<8)
	if err != nil {
		return fmt.Errorf("asking for accounting objects: %w", err)
	}
	for _, message := range messages {
		attributes, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
		if err != nil {
			return fmt.Errorf("reading an accounting object: %w", err)
		}
		var name string
		var packets, bytes uint64
		for _, a := range attributes {
			switch a.Attr.Type &^ unix.NLA_F_NESTED {
			case attributeName:
				name = nl.BytesToString(a.Value)
			case attributePackets:
				packets = binary.BigEndian.Uint64(a.Value)
			case attributeBytes:
				bytes = binary.BigEndian.Uint64(a.Value)
			}
		}
		if _, err := fmt.Fprintf(out, "{ pkts = %020d, bytes = %020d } = %s;\n", packets, bytes, name); err != nil {
			return err
		}
	}
	return nil
}
