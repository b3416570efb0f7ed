package cleanup

import (
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftCompatInverted is NFT_RULE_COMPAT_F_INV (linux/netfilter/nf_tables.h).
const nftCompatInverted = 1 << 1

// protocolOffset is where an IPv4 header has its protocol.
const protocolOffset = 9

// compatOf makes the attribute NFTA_RULE_COMPAT of a rule: the kernel wants to know the protocol that a rule is for before
// it takes matches and targets that are for some protocols only, and does not tell it when it lists the rule. iptables-nft
// writes "-p tcp" as two expressions: load the protocol, compare. None without these.
func compatOf(expressions []byte) []byte {
	parsed, err := nl.ParseRouteAttr(expressions)
	if err != nil {
		return nil
	}
	loaded := false
	for _, expression := range parsed {
		outer := flatAttributes(expression.Value)
		data := flatAttributes(outer[unix.NFTA_EXPR_DATA])
		name := nl.BytesToString(outer[unix.NFTA_EXPR_NAME])
		value := flatAttributes(data[unix.NFTA_CMP_DATA])[unix.NFTA_DATA_VALUE]
		if loaded && name == "cmp" && len(value) == 1 {
			return compat(value[0], bigEndian(data[unix.NFTA_CMP_OP]) == unix.NFT_CMP_NEQ)
		}
		loaded = loadsProtocol(name, data)
	}
	return nil
}

func loadsProtocol(name string, data map[uint16][]byte) bool {
	switch name {
	case "meta":
		return bigEndian(data[unix.NFTA_META_KEY]) == unix.NFT_META_L4PROTO
	case "payload":
		return bigEndian(data[unix.NFTA_PAYLOAD_BASE]) == unix.NFT_PAYLOAD_NETWORK_HEADER &&
			bigEndian(data[unix.NFTA_PAYLOAD_OFFSET]) == protocolOffset && bigEndian(data[unix.NFTA_PAYLOAD_LEN]) == 1
	default:
		return false
	}
}

func compat(protocol uint8, inverted bool) []byte {
	flags := uint32(0)
	if inverted {
		flags = nftCompatInverted
	}
	return slices.Concat(
		rawAttribute(unix.NFTA_RULE_COMPAT_PROTO, nftNumber32(0, uint32(protocol)).value),
		rawAttribute(unix.NFTA_RULE_COMPAT_FLAGS, nftNumber32(0, flags).value),
	)
}
