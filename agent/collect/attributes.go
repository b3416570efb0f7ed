package collect

import (
	"encoding/binary"
	"errors"
)

const (
	// attributeTypeMask drops the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER (linux/netlink.h).
	attributeTypeMask   = 0x3fff
	attributeHeaderSize = 4
)

var errMalformed = errors.New("malformed netlink message")

// attributes walks netlink attributes. Unlike the one of the netlink library it makes no goroutine and no copy: values are
// slices of what it walks.
type attributes struct {
	rest []byte
	// kind has the flags dropped.
	kind  uint16
	value []byte
	err   error
}

// next goes to the next attribute. False at the end, and where err says what is wrong.
func (a *attributes) next() bool {
	if len(a.rest) < attributeHeaderSize {
		if len(a.rest) > 0 {
			a.err = errMalformed
		}
		return false
	}
	length := int(binary.NativeEndian.Uint16(a.rest))
	if length < attributeHeaderSize || length > len(a.rest) {
		a.err = errMalformed
		return false
	}
	a.kind = binary.NativeEndian.Uint16(a.rest[2:]) & attributeTypeMask
	a.value = a.rest[attributeHeaderSize:length]
	a.rest = a.rest[min((length+3)&^3, len(a.rest)):]
	return true
}

// eachAttribute walks netlink attributes until visit returns an error.
func eachAttribute(data []byte, visit func(kind uint16, value []byte) error) error {
	attributes := attributes{rest: data}
	for attributes.next() {
		if err := visit(attributes.kind, attributes.value); err != nil {
			return err
		}
	}
	return attributes.err
}
