package collect

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nfgenmsgSize is the size of struct nfgenmsg, which begins every message of nfnetlink: family, version, resource.
const nfgenmsgSize = 4

// Of linux/netfilter/nf_tables.h, where x/sys has no name for them.
const (
	nftaTableHandle  = 4
	nftTableOwned    = 2 // NFT_TABLE_F_OWNER
	nftaSetHandle    = 16
	nftaSetCount     = 20 // Linux 6.16
	nftSetAnonymous  = 1
	nftDataVerdict   = 0xffffff00
	nftSetTimesOut   = unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	nftSetHasObjects = 0x40 // NFT_SET_OBJECT
)

// nftKind says how objects of one kind are asked for, and what is read of each.
type nftKind struct {
	request int
	named   bool // it has a name besides its table's
	take    func(object *nftObject, attribute uint16, value []byte) error
	what    string
}

func nftTables() nftKind {
	return nftKind{what: "tables", request: unix.NFT_MSG_GETTABLE, take: (*nftObject).takeTable}
}

func nftChains() nftKind {
	return nftKind{what: "chains", request: unix.NFT_MSG_GETCHAIN, named: true, take: (*nftObject).takeChain}
}

func nftSets() nftKind {
	return nftKind{what: "sets", request: unix.NFT_MSG_GETSET, named: true, take: (*nftObject).takeSet}
}

func nftRules() nftKind {
	return nftKind{what: "rules", request: unix.NFT_MSG_GETRULE, named: true, take: (*nftObject).takeRule}
}

// nftObject is a table, chain, set or rule. Its bytes are only good while its message is.
type nftObject struct {
	family uint8
	table  []byte
	// name is the chain's or set's, and for a rule that of its chain.
	name []byte
	// handle is unique among the objects of a table, and rises with each that is made.
	handle uint64
	// hooked: a hook of the kernel calls the chain. hook holds attributes, policy is a verdict, chainType its name.
	hooked          bool
	hook, chainType []byte
	policy          uint32
	// use is how many rules the chain has, and jumps to it: the kernel's own count, which is right at once when a
	// transaction is prepared and again when it fails.
	use uint32
	// flags are those of a table or a set.
	flags uint32
	// keyType and dataType are what nft calls types; the kernel knows only that of verdicts.
	keyType, dataType uint32
	// count is how many elements a set has, for kernels that count for us.
	count   uint32
	counted bool
	// anonymous: part of a rule rather than a thing of its own.
	anonymous             bool
	expressions, userdata []byte
}

// parseNFT takes an answer to a dump apart. Attributes that are not asked for are skipped, whatever is in them.
func parseNFT(kind nftKind, message []byte) (nftObject, error) {
	var object nftObject
	err := object.parse(kind, message)
	return object, err
}

func (o *nftObject) parse(kind nftKind, message []byte) error {
	if len(message) < nfgenmsgSize {
		return errMalformed
	}
	*o = nftObject{family: message[0]}
	attributes := attributes{rest: message[nfgenmsgSize:]}
	for attributes.next() {
		if err := kind.take(o, attributes.kind, attributes.value); err != nil {
			return err
		}
	}
	if attributes.err == nil && (len(o.table) == 0 || kind.named && len(o.name) == 0 || o.handle == 0) {
		return errMalformed
	}
	return attributes.err
}

func (o *nftObject) takeTable(attribute uint16, value []byte) error {
	switch attribute {
	case unix.NFTA_TABLE_NAME:
		o.table = cutNUL(value)
	case unix.NFTA_TABLE_FLAGS:
		return bigEndian32(value, &o.flags)
	case nftaTableHandle:
		return bigEndian64(value, &o.handle)
	}
	return nil
}

func (o *nftObject) takeChain(attribute uint16, value []byte) error {
	switch attribute {
	case unix.NFTA_CHAIN_TABLE:
		o.table = cutNUL(value)
	case unix.NFTA_CHAIN_NAME:
		o.name = cutNUL(value)
	case unix.NFTA_CHAIN_HOOK:
		o.hooked, o.hook = true, value
	case unix.NFTA_CHAIN_TYPE:
		o.chainType = cutNUL(value)
	case unix.NFTA_CHAIN_POLICY:
		return bigEndian32(value, &o.policy)
	case unix.NFTA_CHAIN_USE:
		return bigEndian32(value, &o.use)
	case unix.NFTA_CHAIN_HANDLE:
		return bigEndian64(value, &o.handle)
	}
	return nil
}

func (o *nftObject) takeSet(attribute uint16, value []byte) error {
	switch attribute {
	case unix.NFTA_SET_TABLE:
		o.table = cutNUL(value)
	case unix.NFTA_SET_NAME:
		o.name = cutNUL(value)
	case unix.NFTA_SET_KEY_TYPE:
		return bigEndian32(value, &o.keyType)
	case unix.NFTA_SET_DATA_TYPE:
		return bigEndian32(value, &o.dataType)
	case unix.NFTA_SET_USERDATA:
		o.userdata = value
	case nftaSetCount:
		o.counted = true
		return bigEndian32(value, &o.count)
	case nftaSetHandle:
		return bigEndian64(value, &o.handle)
	case unix.NFTA_SET_FLAGS:
		err := bigEndian32(value, &o.flags)
		o.anonymous = o.flags&nftSetAnonymous != 0
		return err
	}
	return nil
}

func (o *nftObject) takeRule(attribute uint16, value []byte) error {
	switch attribute {
	case unix.NFTA_RULE_TABLE:
		o.table = cutNUL(value)
	case unix.NFTA_RULE_CHAIN:
		o.name = cutNUL(value)
	case unix.NFTA_RULE_EXPRESSIONS:
		o.expressions = value
	case unix.NFTA_RULE_USERDATA:
		o.userdata = value
	case unix.NFTA_RULE_HANDLE:
		return bigEndian64(value, &o.handle)
	}
	return nil
}

// nftComment finds the comment among the user data of a rule (libnftnl udata.h; NFTNL_UDATA_RULE_COMMENT is 0). The kernel
// does not look at it, so what is odd is no comment.
func nftComment(userdata []byte) []byte {
	var comment []byte
	eachUserdata(userdata, func(kind uint8, value []byte) {
		if kind == 0 && comment == nil {
			comment = cutNUL(value)
		}
	})
	return comment
}

func bigEndian32(value []byte, to *uint32) error {
	if len(value) != 4 {
		return errMalformed
	}
	*to = binary.BigEndian.Uint32(value)
	return nil
}

func bigEndian64(value []byte, to *uint64) error {
	if len(value) != 8 {
		return errMalformed
	}
	*to = binary.BigEndian.Uint64(value)
	return nil
}

func isZero(data []byte) bool { return len(bytes.TrimLeft(data, "\x00")) == 0 }
