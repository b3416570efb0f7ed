package collect

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftElement is an element of a set or map. Its bytes are only good while its message is.
type nftElement struct {
	key []byte
	// data is a verdict, where it has one.
	data nftImmediate
}

// elements hands every element of a set to visit.
func (r *nftReader) elements(ctx context.Context, table nftTableKey, set string, visit func(*nftElement) error) error {
	request := elementsRequest(table, set, unix.NLM_F_DUMP)
	err := r.socket.ask(ctx, request, func(message []byte) error { return eachElement(message, visit) })
	if err != nil {
		return fmt.Errorf("list the elements of set %s of nf_tables: %w", printable([]byte(set)), err)
	}
	return nil
}

func elementsRequest(table nftTableKey, set string, flags int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: table.family, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(table.name)))
	request.AddData(nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	return request
}

// eachElement takes one message of a list of elements apart.
func eachElement(message []byte, visit func(*nftElement) error) error {
	if len(message) < nfgenmsgSize {
		return errMalformed
	}
	parts := attributes{rest: message[nfgenmsgSize:]}
	for parts.next() {
		if parts.kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		list := attributes{rest: parts.value}
		for list.next() {
			element, err := parseElement(list.value)
			if err == nil {
				err = visit(&element)
			}
			if err != nil {
				return err
			}
		}
		if list.err != nil {
			return list.err
		}
	}
	return parts.err
}

func parseElement(data []byte) (nftElement, error) {
	var element nftElement
	parts := attributes{rest: data}
	for parts.next() {
		var err error
		switch parts.kind {
		case unix.NFTA_SET_ELEM_KEY:
			err = takeValue(parts.value, &element.key)
		case unix.NFTA_SET_ELEM_DATA:
			err = element.data.takeData(parts.value)
		}
		if err != nil {
			return element, err
		}
	}
	return element, parts.err
}

// addVerdictMaps follows the jumps that stand in the elements of maps.
func (r *nftReader) addVerdictMaps(ctx context.Context, snapshot *nftSnapshot) error {
	for key, table := range snapshot.tables {
		for name, chains := range table.verdictMaps {
			err := r.elements(ctx, key, name, func(element *nftElement) error {
				if len(element.data.chain) == 0 {
					return nil
				}
				table.jumps++
				if table.iptables != nil {
					table.iptables.addMapJump(table.name, name, chains, element.data.chain)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// addMapJump takes a jump that stands in an element of a map. kube-proxy makes none in iptables' tables.
func (s *ruleset) addMapJump(table, name string, chains []string, to []byte) {
	if !s.chainOwner(table, string(to)).IsKubeProxy() {
		return
	}
	for _, from := range chains {
		s.references.add(1, table, from, string(to), "")
	}
	if len(chains) == 0 { // no rule looks into the map, and yet it holds the chain
		s.references.add(1, table, "@"+name, string(to), "")
	}
}
