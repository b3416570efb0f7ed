package collect

import (
	"encoding/binary"
	"fmt"
)

// What nft 1.0.6 knows (its include/datatype.h, include/expression.h, linux/netfilter/nf_tables.h): that version, patched,
// is what kube-proxy images carry, and on what is newer it may fail or crash (kubernetes issue 136786).
const (
	newestDatatype = 46 // TYPE_CGROUPV2
	datatypeBits   = 6  // a concatenation has its types side by side (TYPE_BITS)
	newestSetFlags = 1<<9 - 1
)

// Of libnftnl/udata.h: what nft notes about a set for itself, which the kernel does not look at.
const (
	udataKeyTypeof  = 3 // NFTNL_UDATA_SET_KEY_TYPEOF
	udataDataTypeof = 4
	udataExpression = 0 // NFTNL_UDATA_SET_TYPEOF_EXPR
)

// newerFeatures says what about a set an older nft may not be able to list, in a few words each.
func newerFeatures(set *nftObject) []string {
	var found []string
	name := printable(set.name)
	if flags := set.flags &^ newestSetFlags; flags != 0 {
		found = append(found, fmt.Sprintf("set %s: flags 0x%x", name, flags))
	}
	for types := set.keyType; types != 0; types >>= datatypeBits {
		if kind := types & (1<<datatypeBits - 1); kind > newestDatatype {
			found = append(found, fmt.Sprintf("set %s: key type %d", name, kind))
		}
	}
	eachUserdata(set.userdata, func(kind uint8, value []byte) {
		if kind != udataKeyTypeof && kind != udataDataTypeof {
			return
		}
		if expression, ok := typeofExpression(value); ok && !isReadExpression(expression) {
			found = append(found, fmt.Sprintf("set %s: type noted as expression %d", name, expression))
		}
	})
	return found
}

// isReadExpression reports whether nft 1.0.6 reads such an expression back from the notes on a set. It crashes on one that it
// does not write itself; newer versions note plain types as EXPR_VALUE (nftables commit be737a1986bf).
func isReadExpression(expression uint32) bool {
	switch expression {
	case 1, 7, 8, 9, 10, 11, 12, 13, 23, 24, 25, 26, 27: // verdict, payload, exthdr, meta, socket, osf, ct, concat, numgen to xfrm
		return true
	default:
		return false
	}
}

func typeofExpression(data []byte) (uint32, bool) {
	var expression uint32
	found := false
	eachUserdata(data, func(kind uint8, value []byte) {
		if kind == udataExpression && len(value) == 4 {
			expression, found = binary.NativeEndian.Uint32(value), true
		}
	})
	return expression, found
}

// eachUserdata walks TYPE LENGTH VALUE, one byte each for the first two (libnftnl src/udata.c). What does not fit ends it.
func eachUserdata(data []byte, visit func(kind uint8, value []byte)) {
	for len(data) >= 2 {
		end := 2 + int(data[1])
		if end > len(data) {
			return
		}
		visit(data[0], data[2:end])
		data = data[end:]
	}
}
