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
	nftaTableHandle = 4
	nftaSetHandle   = 16
	nftSetAnonymous = 1
)

// nftKind says how objects of one kind are asked for, and which attributes name them (linux/netfilter/nf_tables.h).
// Attribute 0 is never used: it stands for "has none".
type nftKind struct {
	request               int
	table, name, handle   uint16
	hook, use, flags      uint16
	expressions, userdata uint16
	anonymous             uint32 // flag of an object that has no name of its own to people
	what                  string
}

func nftTables() nftKind {
	return nftKind{
		what: "tables", request: unix.NFT_MSG_GETTABLE,
		table: unix.NFTA_TABLE_NAME, handle: nftaTableHandle,
	}
}

func nftChains() nftKind {
	return nftKind{
		what: "chains", request: unix.NFT_MSG_GETCHAIN,
		table: unix.NFTA_CHAIN_TABLE, name: unix.NFTA_CHAIN_NAME, handle: unix.NFTA_CHAIN_HANDLE,
		hook: unix.NFTA_CHAIN_HOOK, use: unix.NFTA_CHAIN_USE,
	}
}

func nftSets() nftKind {
	return nftKind{
		what: "sets", request: unix.NFT_MSG_GETSET,
		table: unix.NFTA_SET_TABLE, name: unix.NFTA_SET_NAME, handle: nftaSetHandle,
		flags: unix.NFTA_SET_FLAGS, anonymous: nftSetAnonymous,
	}
}

func nftRules() nftKind {
	return nftKind{
		what: "rules", request: unix.NFT_MSG_GETRULE,
		table: unix.NFTA_RULE_TABLE, name: unix.NFTA_RULE_CHAIN, handle: unix.NFTA_RULE_HANDLE,
		expressions: unix.NFTA_RULE_EXPRESSIONS, userdata: unix.NFTA_RULE_USERDATA,
	}
}

// nftObject is a table, chain, set or rule. Its bytes are only good while its message is.
type nftObject struct {
	family uint8
	table  []byte
	// name is the chain's or set's, and for a rule that of its chain.
	name []byte
	// handle is unique among the objects of a table, and rises with each that is made.
	handle uint64
	// hooked: a hook of the kernel calls the chain.
	hooked bool
	// use is how many rules the chain has, and jumps to it: the kernel's own count, which is right at once when a
	// transaction is prepared and again when it fails.
	use uint32
	// anonymous: part of a rule rather than a thing of its own.
	anonymous             bool
	expressions, userdata []byte
}

// parseNFT takes an answer to a dump apart. Attributes that are not asked for are skipped, whatever is in them.
func parseNFT(kind nftKind, message []byte) (nftObject, error) {
	if len(message) < nfgenmsgSize {
		return nftObject{}, errMalformed
	}
	object := nftObject{family: message[0]}
	err := eachAttribute(message[nfgenmsgSize:], func(attribute uint16, value []byte) error {
		switch attribute {
		case 0:
		case kind.table:
			object.table = cutNUL(value)
		case kind.name:
			object.name = cutNUL(value)
		case kind.hook:
			object.hooked = true
		case kind.expressions:
			object.expressions = value
		case kind.userdata:
			object.userdata = value
		case kind.use:
			return bigEndian32(value, &object.use)
		case kind.handle:
			return bigEndian64(value, &object.handle)
		case kind.flags:
			var flags uint32
			err := bigEndian32(value, &flags)
			object.anonymous = flags&kind.anonymous != 0
			return err
		}
		return nil
	})
	if err == nil && (len(object.table) == 0 || kind.name != 0 && len(object.name) == 0 || object.handle == 0) {
		err = errMalformed
	}
	return object, err
}

// nftComment finds the comment among the user data of a rule: TYPE LENGTH VALUE, one byte each for the first two
// (libnftnl udata.h; NFTNL_UDATA_RULE_COMMENT is 0). The kernel does not look at it, so what is odd is no comment.
func nftComment(userdata []byte) []byte {
	for len(userdata) >= 2 {
		kind, length := userdata[0], int(userdata[1])
		if length > len(userdata)-2 {
			return nil
		}
		if kind == 0 {
			return cutNUL(userdata[2 : 2+length])
		}
		userdata = userdata[2+length:]
	}
	return nil
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
