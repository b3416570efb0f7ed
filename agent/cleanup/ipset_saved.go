package cleanup

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of linux/netfilter/ipset/ip_set.h whose numbers the netlink library does not have, or has otherwise.
const (
	ipsetInitval    = 17
	ipsetHashsize   = 18
	ipsetMaxelem    = 19
	ipsetBucketsize = 21
	ipsetElements   = 24 // 24 to 26 are told by the kernel alone

	ipsetMemsize = 26
)

// saveSet lists an ipset; ENOENT when it is not there.
func saveSet(name string) (*savedSet, error) {
	request := ipsetRequest(nl.IPSET_CMD_LIST, unix.NLM_F_ACK|unix.NLM_F_DUMP)
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, fmt.Errorf("list ipset %s: %w", name, err)
	}
	set := &savedSet{Name: name}
	for _, answer := range answers {
		if err := set.take(answer); err != nil {
			return nil, fmt.Errorf("list ipset %s: %w", name, err)
		}
	}
	if set.Type == "" {
		return nil, fmt.Errorf("list ipset %s: %w", name, errors.New("it has no type"))
	}
	return set, nil
}

// take takes one message of a list: the first has the header, all have members.
func (s *savedSet) take(answer []byte) error {
	attributes, err := nl.ParseRouteAttr(answer[min(nl.SizeofNfgenmsg, len(answer)):])
	if err != nil {
		return err
	}
	for _, attribute := range attributes {
		switch kind := attribute.Attr.Type & nl.NLA_TYPE_MASK; kind {
		case nl.IPSET_ATTR_TYPENAME:
			s.Type = nl.BytesToString(attribute.Value)
			s.Create = append(s.Create, rawAttribute(kind, attribute.Value)...)
		case nl.IPSET_ATTR_REVISION, nl.IPSET_ATTR_FAMILY:
			s.Create = append(s.Create, rawAttribute(kind, attribute.Value)...)
		case nl.IPSET_ATTR_DATA:
			options, err := createOptions(attribute.Value)
			if err != nil {
				return err
			}
			s.Create = append(s.Create, options...)
		case nl.IPSET_ATTR_ADT:
			if err := s.takeMembers(attribute.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// createOptions is the nested attribute of options, without what only the kernel tells.
func createOptions(data []byte) ([]byte, error) {
	options, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, err
	}
	var kept []byte
	for _, option := range options {
		if kind := option.Attr.Type & nl.NLA_TYPE_MASK; kind < ipsetElements || kind > ipsetMemsize {
			kept = append(kept, rawAttribute(option.Attr.Type, option.Value)...)
		}
	}
	return rawAttribute(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, kept), nil
}

func (s *savedSet) takeMembers(data []byte) error {
	members, err := nl.ParseRouteAttr(data)
	if err != nil {
		return err
	}
	for _, member := range members {
		values, err := nl.ParseRouteAttr(member.Value)
		if err != nil {
			return err
		}
		var kept []byte
		for _, value := range values {
			kept = append(kept, memberAttribute(value.Attr.Type, value.Value)...)
		}
		s.Members = append(s.Members, rawAttribute(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, kept))
	}
	return nil
}

// memberAttribute is a part of a member as the kernel takes it: of addresses it wants to be told that they are in network
// order (ip_set_get_ipaddr4), which it does not say itself when it lists them.
func memberAttribute(kind uint16, value []byte) []byte {
	if base := kind & nl.NLA_TYPE_MASK; base != nl.IPSET_ATTR_IP && base != ipsetIP2 {
		return rawAttribute(kind, value)
	}
	inner, err := nl.ParseRouteAttr(value)
	if err != nil || len(inner) != 1 {
		return rawAttribute(kind, value)
	}
	return rawAttribute(kind, rawAttribute(inner[0].Attr.Type|unix.NLA_F_NET_BYTEORDER, inner[0].Value))
}

// rawAttribute is an attribute as it is on the wire.
func rawAttribute(kind uint16, value []byte) []byte {
	return nl.NewRtAttr(int(kind), value).Serialize()
}

// rawData is attributes that are on the wire already.
type rawData []byte

// Len implements nl.NetlinkRequestData.
func (d rawData) Len() int { return len(d) }

// Serialize implements nl.NetlinkRequestData.
func (d rawData) Serialize() []byte { return d }

// maxMembers is how many members are added at once: a message has to stay below 64 KiB.
const maxMembers = 500

// restore makes the set anew and fills it. existed is true where there is one of that name, which stays as it is.
func (s *savedSet) restore() (existed bool, err error) {
	request := ipsetRequest(nl.IPSET_CMD_CREATE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(s.Name)))
	request.AddData(rawData(s.Create))
	_, err = request.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.EEXIST) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("make ipset %s: %w", s.Name, err)
	}
	for at := 0; at < len(s.Members); at += maxMembers {
		if err := s.add(s.Members[at:min(at+maxMembers, len(s.Members))]); err != nil {
			return false, fmt.Errorf("fill ipset %s: %w", s.Name, err)
		}
	}
	return false, nil
}

func (s *savedSet) add(members [][]byte) error {
	var all []byte
	for _, member := range members {
		all = append(all, member...)
	}
	request := ipsetRequest(nl.IPSET_CMD_ADD, unix.NLM_F_ACK)
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(s.Name)))
	// The kernel takes several members only with a line number to name in errors.
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_LINENO, make([]byte, 4)))
	request.AddData(rawData(rawAttribute(nl.IPSET_ATTR_ADT|unix.NLA_F_NESTED, all)))
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}
