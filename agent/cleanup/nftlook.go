package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftTable is what stands in one table right now: the handles of the rules of each chain.
type nftTable map[string][]uint64

// nftGeneration asks for the generation of the ruleset, which moves with every commit in the network namespace.
func nftGeneration() (uint32, error) {
	answers, err := nftAsk(unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC)
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nf_tables: %w", err)
	}
	for _, answer := range answers {
		attributes, err := nftAttributes(answer)
		if err != nil {
			return 0, err
		}
		if value := attributes[unix.NFTA_GEN_ID]; len(value) == 4 {
			return binary.BigEndian.Uint32(value), nil
		}
	}
	return 0, errors.New("nf_tables did not tell its generation")
}

// lookNFTTable lists a table. What it returns is only of one moment if a transaction with the generation of before goes
// through.
func lookNFTTable(family uint8, name string) (nftTable, error) {
	table := nftTable{}
	chains, err := nftAsk(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family)
	if err != nil {
		return nil, fmt.Errorf("list the chains of nf_tables: %w", err)
	}
	for _, chain := range chains {
		attributes, err := nftAttributes(chain)
		if err != nil {
			return nil, err
		}
		if nl.BytesToString(attributes[unix.NFTA_CHAIN_TABLE]) == name {
			table[nl.BytesToString(attributes[unix.NFTA_CHAIN_NAME])] = nil
		}
	}
	rules, err := nftAsk(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family, nftText(unix.NFTA_RULE_TABLE, name))
	if err != nil {
		return nil, fmt.Errorf("list the rules of nf_tables: %w", err)
	}
	return table, table.addRules(rules)
}

func (t nftTable) addRules(rules [][]byte) error {
	for _, rule := range rules {
		attributes, err := nftAttributes(rule)
		if err != nil {
			return err
		}
		if handle := attributes[unix.NFTA_RULE_HANDLE]; len(handle) == 8 {
			chain := nl.BytesToString(attributes[unix.NFTA_RULE_CHAIN])
			t[chain] = append(t[chain], binary.BigEndian.Uint64(handle))
		}
	}
	return nil
}

func nftAsk(message, flags int, family uint8, attributes ...nftAttribute) ([][]byte, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, attribute := range attributes {
		request.AddData(nl.NewRtAttr(int(attribute.kind), attribute.value))
	}
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		// A commit in the middle of the listing: the same news as a generation that moved.
		return nil, fmt.Errorf("%w: %w", errChanged, err)
	}
	return answers, err
}

// nftAttributes are the attributes of an answer by kind, flags of the kind dropped. Values of nested ones are as on the
// wire.
func nftAttributes(message []byte) (map[uint16][]byte, error) {
	if len(message) < nl.SizeofNfgenmsg {
		return nil, errors.New("a message of nf_tables is cut short")
	}
	all := map[uint16][]byte{}
	parsed, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	if err != nil {
		return nil, fmt.Errorf("a message of nf_tables is not understood: %w", err)
	}
	for _, attribute := range parsed {
		all[attribute.Attr.Type&nl.NLA_TYPE_MASK] = attribute.Value
	}
	return all, nil
}

// hasNFTTable reports whether a table is there.
func hasNFTTable(family uint8, name string) (bool, error) {
	tables, err := nftAsk(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, family)
	if err != nil {
		return false, fmt.Errorf("list the tables of nf_tables: %w", err)
	}
	for _, table := range tables {
		attributes, err := nftAttributes(table)
		if err != nil {
			return false, err
		}
		if nl.BytesToString(attributes[nftaTableName]) == name {
			return true, nil
		}
	}
	return false, nil
}
