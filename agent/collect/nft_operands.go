package collect

import "golang.org/x/sys/unix"

// nftOperation is an expression that loads, changes or compares a register.
type nftOperation uint8

const (
	operationCT nftOperation = iota
	operationMeta
	operationBitwise
	operationCompare
)

// nftOperands are the attributes of such an expression that matter here. The numbers of attributes differ.
type nftOperands struct {
	source, destination, operation, key uint32
	mask, xor, value                    []byte
	direction                           bool
}

func (o *nftOperands) parse(kind nftOperation, data []byte) error {
	parts := attributes{rest: data}
	for parts.next() {
		var err error
		switch kind {
		case operationCT:
			err = o.takeConntrack(parts.kind, parts.value)
		case operationMeta:
			err = o.takeMeta(parts.kind, parts.value)
		case operationBitwise:
			err = o.takeBitwise(parts.kind, parts.value)
		case operationCompare:
			err = o.takeCompare(parts.kind, parts.value)
		}
		if err != nil {
			return err
		}
	}
	return parts.err
}

// addOperation follows the registers of a connection's state and of the packet's mark.
func (m *nftMatches) addOperation(kind nftOperation, data []byte) error {
	if m.otherMatches && m.mark.register == 0 {
		return nil
	}
	var operands nftOperands
	if err := operands.parse(kind, data); err != nil {
		return err
	}
	if use, ok := m.mark.step(kind, &operands); ok {
		m.marks = append(m.marks, use)
	}
	m.addStateStep(kind, &operands)
	return nil
}

func (o *nftOperands) takeConntrack(kind uint16, value []byte) error {
	switch kind {
	case unix.NFTA_CT_DREG:
		return bigEndian32(value, &o.destination)
	case unix.NFTA_CT_SREG:
		return bigEndian32(value, &o.source)
	case unix.NFTA_CT_KEY:
		return bigEndian32(value, &o.key)
	case unix.NFTA_CT_DIRECTION:
		o.direction = true
	}
	return nil
}

func (o *nftOperands) takeMeta(kind uint16, value []byte) error {
	switch kind {
	case unix.NFTA_META_DREG:
		return bigEndian32(value, &o.destination)
	case unix.NFTA_META_SREG:
		return bigEndian32(value, &o.source)
	case unix.NFTA_META_KEY:
		return bigEndian32(value, &o.key)
	}
	return nil
}

// nftaBitwiseOp is NFTA_BITWISE_OP, which x/sys does not name.
const nftaBitwiseOp = 6

func (o *nftOperands) takeBitwise(kind uint16, value []byte) error {
	switch kind {
	case unix.NFTA_BITWISE_SREG:
		return bigEndian32(value, &o.source)
	case unix.NFTA_BITWISE_DREG:
		return bigEndian32(value, &o.destination)
	case nftaBitwiseOp:
		return bigEndian32(value, &o.operation)
	case unix.NFTA_BITWISE_MASK:
		return takeValue(value, &o.mask)
	case unix.NFTA_BITWISE_XOR:
		return takeValue(value, &o.xor)
	}
	return nil
}

func (o *nftOperands) takeCompare(kind uint16, value []byte) error {
	switch kind {
	case unix.NFTA_CMP_SREG:
		return bigEndian32(value, &o.source)
	case unix.NFTA_CMP_OP:
		return bigEndian32(value, &o.operation)
	case unix.NFTA_CMP_DATA:
		return takeValue(value, &o.value)
	}
	return nil
}

// takeValue unwraps NFTA_DATA_VALUE.
func takeValue(data []byte, to *[]byte) error {
	parts := attributes{rest: data}
	for parts.next() {
		if parts.kind == unix.NFTA_DATA_VALUE {
			*to = parts.value
		}
	}
	return parts.err
}
