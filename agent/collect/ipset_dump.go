package collect

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

const (
	// ipsetListHeader is IPSET_FLAG_LIST_HEADER: headers without members (linux/netfilter/ipset/ip_set.h).
	ipsetListHeader = 1 << 2
	// maxIPSets is how many sets a network namespace can have (IPSET_INVALID_ID is 65,535).
	maxIPSets = 65535
)

// dumpIPSetHeaders lists the headers of all sets, sorted by name.
func dumpIPSetHeaders(ctx context.Context, s *socket) ([]ipsetHeader, error) {
	flags := binary.BigEndian.AppendUint32(nil, ipsetListHeader)
	request := ipsetRequest(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|int(nl.NLA_F_NET_BYTEORDER), flags))
	var headers []ipsetHeader
	err := s.dump(ctx, request, func(message []byte) error {
		header, hasHeader, err := parseIPSetMessage(message, nil)
		if err == nil && !hasHeader {
			err = fmt.Errorf("set %q without a header: %w", header.name, errMalformed)
		}
		if len(headers) == maxIPSets {
			err = errors.New("more sets than a kernel can have")
		}
		headers = append(headers, header)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the ipsets: %w", err)
	}
	return sortHeaders(headers)
}

// sortHeaders sorts by name. A name that comes twice was renamed or made anew while the list was read.
func sortHeaders(headers []ipsetHeader) ([]ipsetHeader, error) {
	slices.SortFunc(headers, func(a, b ipsetHeader) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(headers); i++ {
		if headers[i].name == headers[i-1].name {
			return nil, errTorn
		}
	}
	return headers, nil
}

// dumpIPSetMembers hands every member of one set to visit. It is errTorn when the set is no longer what it was, and when
// the kernel tells another number of members than it has said the set has.
func dumpIPSetMembers(ctx context.Context, s *socket, set kubeproxy.Set, visit func(ipsetMember)) error {
	return dumpElements(ctx, s, set, func(data []byte) error {
		var member ipsetMember
		err := member.parse(data)
		if err == nil {
			visit(member)
		}
		return err
	})
}

// dumpElements hands the attributes of every element of one set to visit, and is errTorn as dumpIPSetMembers is.
func dumpElements(ctx context.Context, s *socket, set kubeproxy.Set, visit func([]byte) error) error {
	request := ipsetRequest(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, append([]byte(set.Name), 0)))
	var header ipsetHeader
	var members uint32
	err := s.dump(ctx, request, func(message []byte) error {
		part, hasHeader, err := parseIPSetMessage(message, func(data []byte) error {
			members++
			return visit(data)
		})
		if hasHeader {
			header = part
		}
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return errTorn
	case err != nil:
		return fmt.Errorf("list the members of ipset %s: %w", set.Name, err)
	default:
		return header.confirm(set, members)
	}
}

// confirm is errTorn when a dump was not of the set that was asked for, or not of all its members.
func (h ipsetHeader) confirm(set kubeproxy.Set, members uint32) error {
	if h.set() != set || h.entries != members {
		return errTorn
	}
	return nil
}

func (h ipsetHeader) set() kubeproxy.Set {
	return kubeproxy.Set{Name: h.name, Type: h.kind, Family: h.family}
}

func ipsetRequest(what *nl.RtAttr) *nl.NetlinkRequest {
	const command = unix.NFNL_SUBSYS_IPSET<<8 | nl.IPSET_CMD_LIST
	request := nl.NewNetlinkRequest(command, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL}))
	request.AddData(what)
	return request
}
