package collect

import (
	"bytes"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// networkEvents tells which sections a notification of rtnetlink concerns. Not for concurrent use.
type networkEvents struct {
	names map[int32]string // of links, by index, as far as they were announced
}

// concerns returns the sections; none for what happens all day on a node where pods come and go. What is not understood
// concerns all of them.
func (e *networkEvents) concerns(kind uint16, message []byte) []offrampv1.SectionKind {
	switch kind {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return addressConcerns(message)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return routeConcerns(message)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return e.linkConcerns(kind, message)
	default:
		return nil
	}
}

func addressConcerns(message []byte) []offrampv1.SectionKind {
	if len(message) >= unix.SizeofIfAddrmsg && nl.DeserializeIfAddrmsg(message).Scope >= unix.RT_SCOPE_LINK {
		// Such as every pod's link gets: no virtual server is there.
		return []offrampv1.SectionKind{kindAddresses}
	}
	return networkKinds()
}

func routeConcerns(message []byte) []offrampv1.SectionKind {
	one, err := parseRoute(message)
	switch {
	case err != nil:
		return networkKinds()
	case one.table == unix.RT_TABLE_LOCAL:
		return []offrampv1.SectionKind{kindIPVSLink}
	case one.table == unix.RT_TABLE_MAIN && one.destination.Bits() <= 0:
		return []offrampv1.SectionKind{kindAddresses}
	default:
		return nil
	}
}

func (e *networkEvents) linkConcerns(kind uint16, message []byte) []offrampv1.SectionKind {
	if len(message) < unix.SizeofIfInfomsg {
		return networkKinds()
	}
	var name string
	err := eachAttribute(message[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) error {
		if kind == unix.IFLA_IFNAME {
			name = string(bytes.TrimRight(value, "\x00"))
		}
		return nil
	})
	if err != nil {
		return networkKinds()
	}
	index := nl.DeserializeIfInfomsg(message).Index
	before, known := e.names[index]
	if e.names[index] = name; kind == unix.RTM_DELLINK {
		delete(e.names, index)
	}
	if name == kubeproxy.IPVSLink || known && before != name {
		return networkKinds()
	}
	return nil
}
