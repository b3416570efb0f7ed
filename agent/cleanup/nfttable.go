package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftPart is a kind of object of a native table: how it is listed, and what of the list makes it anew.
type nftPart struct {
	get, create int
	// table is the attribute that names the table, name the object's own.
	table, name uint16
	// keep are the attributes to send again: handles, counts of uses and positions are the kernel's.
	keep []uint16
}

// nftParts are in the order in which they have to be made (linux/netfilter/nf_tables.h). Elements of sets come in between.
func nftParts() []nftPart {
	return []nftPart{
		{
			unix.NFT_MSG_GETTABLE, unix.NFT_MSG_NEWTABLE, nftaTableName, nftaTableName,
			[]uint16{nftaTableName, unix.NFTA_TABLE_FLAGS, nftaTableUserdata},
		},
		{
			unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME,
			[]uint16{unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, nftaChainUserdata},
		},
		{
			unix.NFT_MSG_GETOBJ, unix.NFT_MSG_NEWOBJ, unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME,
			[]uint16{unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME, unix.NFTA_OBJ_TYPE, unix.NFTA_OBJ_DATA},
		},
		{
			unix.NFT_MSG_GETSET, unix.NFT_MSG_NEWSET, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME,
			[]uint16{
				unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN,
				unix.NFTA_SET_DATA_TYPE, unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_POLICY, unix.NFTA_SET_DESC, unix.NFTA_SET_TIMEOUT,
				unix.NFTA_SET_GC_INTERVAL, unix.NFTA_SET_USERDATA, unix.NFTA_SET_OBJ_TYPE, nftaSetExpr, nftaSetExpressions,
			},
		},
		{
			unix.NFT_MSG_GETRULE, unix.NFT_MSG_NEWRULE, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN,
			[]uint16{unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_EXPRESSIONS, unix.NFTA_RULE_COMPAT, unix.NFTA_RULE_USERDATA},
		},
	}
}

// Of linux/netfilter/nf_tables.h, where x/sys has no name for them.
const (
	nftaTableUserdata  = 6
	nftaChainUserdata  = 12
	nftaSetExpr        = 17
	nftaSetExpressions = 18
)

// saveTable lists a native table as the messages that make it anew. It is tried again for nftPatience while the ruleset
// changes.
func saveTable(ctx context.Context, family uint8, name string) (*savedTable, error) {
	patience, cancel := context.WithTimeout(ctx, nftPatience)
	defer cancel()
	for {
		table, err := saveTableOnce(family, name)
		if !errors.Is(err, errChanged) || outOfStep(patience) != nil {
			return table, err
		}
	}
}

func saveTableOnce(family uint8, name string) (*savedTable, error) {
	before, err := nftGeneration()
	if err != nil {
		return nil, err
	}
	table, err := listTable(family, name)
	if err != nil {
		return nil, err
	}
	after, err := nftGeneration()
	if err == nil && before != after {
		err = errChanged
	}
	return table, err
}

func listTable(family uint8, name string) (*savedTable, error) {
	table := &savedTable{Family: family, Name: name}
	for _, part := range nftParts() {
		answers, err := nftAsk(part.get, unix.NLM_F_DUMP, family)
		if err != nil {
			return nil, fmt.Errorf("list table %s of nf_tables: %w", name, err)
		}
		for _, answer := range answers {
			attributes, err := nl.ParseRouteAttr(answer[min(nl.SizeofNfgenmsg, len(answer)):])
			if err != nil {
				return nil, fmt.Errorf("list table %s of nf_tables: %w", name, err)
			}
			if values := flatAttributes(answer[nl.SizeofNfgenmsg:]); nl.BytesToString(values[part.table]) == name {
				table.Messages = append(table.Messages, savedNFTMessage{uint16(part.create), keepAttributes(attributes, part.keep)}) //nolint:gosec // a message number
			}
		}
		if part.get == unix.NFT_MSG_GETSET {
			if err := table.addElements(); err != nil {
				return nil, err
			}
		}
	}
	return table, nil
}

func keepAttributes(attributes []syscall.NetlinkRouteAttr, keep []uint16) []byte {
	var kept []byte
	for _, attribute := range attributes {
		if slices.Contains(keep, attribute.Attr.Type&nl.NLA_TYPE_MASK) {
			kept = append(kept, rawAttribute(attribute.Attr.Type, attribute.Value)...)
		}
	}
	return kept
}

// addElements lists the elements of each set that was listed.
func (t *savedTable) addElements() error {
	for _, message := range slices.Clone(t.Messages) {
		if message.Kind != unix.NFT_MSG_NEWSET {
			continue
		}
		set := nl.BytesToString(flatAttributes(message.Attributes)[unix.NFTA_SET_NAME])
		answers, err := nftAsk(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Family,
			nftText(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name), nftText(unix.NFTA_SET_ELEM_LIST_SET, set))
		if err != nil {
			return fmt.Errorf("list the elements of set %s of nf_tables: %w", set, err)
		}
		for _, answer := range answers {
			elements := answer[min(nl.SizeofNfgenmsg, len(answer)):]
			if len(flatAttributes(elements)[unix.NFTA_SET_ELEM_LIST_ELEMENTS]) > 0 {
				t.Messages = append(t.Messages, savedNFTMessage{unix.NFT_MSG_NEWSETELEM, slices.Clone(elements)})
			}
		}
	}
	return nil
}

// write puts what makes the table anew into a transaction, which fails where there is a table of that name.
func (t *savedTable) write(batch *nftBatch) {
	for i, message := range t.Messages {
		flags := uint16(unix.NLM_F_CREATE)
		switch message.Kind {
		case unix.NFT_MSG_NEWRULE:
			flags |= unix.NLM_F_APPEND
		case unix.NFT_MSG_NEWTABLE:
			flags |= unix.NLM_F_EXCL
		}
		raw := message.Attributes
		if message.Kind == unix.NFT_MSG_NEWSET {
			raw = slices.Concat(raw, rawAttribute(unix.NFTA_SET_ID, nftNumber32(0, uint32(i+1)).value))
		}
		batch.addRaw(message.Kind, flags, t.Family, raw)
	}
}
