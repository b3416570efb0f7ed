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

// eachAttribute walks netlink attributes, flags of the type dropped, until visit returns an error. Unlike the one of the
// netlink library it makes no goroutine and no copy: values are only good during visit.
func eachAttribute(data []byte, visit func(kind uint16, value []byte) error) error {
	for len(data) >= attributeHeaderSize {
		length := int(binary.NativeEndian.Uint16(data))
		if length < attributeHeaderSize || length > len(data) {
			return errMalformed
		}
		kind := binary.NativeEndian.Uint16(data[2:]) & attributeTypeMask
		if err := visit(kind, data[attributeHeaderSize:length]); err != nil {
			return err
		}
		data = data[min((length+3)&^3, len(data)):]
	}
	if len(data) > 0 {
		return errMalformed
	}
	return nil
}
