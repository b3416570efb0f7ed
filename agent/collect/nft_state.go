package collect

import "golang.org/x/sys/unix"

// ctStep is how much of "ct state new" has been seen. nft writes it as three expressions: load the state into a register,
// keep the bit of NEW, compare with nothing left (or, since a state is one bit, compare with the bit).
type ctStep uint8

const (
	ctIdle ctStep = iota
	ctLoaded
	ctMasked
)

// ctState follows the register that a connection's state was loaded into.
type ctState struct {
	step     ctStep
	register uint32
}

// nftOperands are the attributes of a ct, bitwise or cmp expression that matter here. The numbers of attributes differ.
type nftOperands struct {
	source, destination, operation, key uint32
	mask, xor, value                    []byte
	direction                           bool
}

// addStateStep takes an expression that may be part of "ct state new". Any other use is another match.
func (m *nftMatches) addStateStep(name string, data []byte) error {
	if m.otherMatches {
		return nil // nothing can make it kube-proxy's own jump any more
	}
	operands, err := parseOperands(name, data)
	if err != nil {
		return err
	}
	switch {
	case name == "ct" && m.state.step == ctIdle && operands.loadsState():
		m.state = ctState{ctLoaded, operands.destination}
	case name == "bitwise" && m.state.step == ctLoaded && operands.masksNew(m.state.register):
		m.state = ctState{ctMasked, operands.destination}
	case name == "cmp" && operands.source == m.state.register && operands.comparesNew(m.state.step):
		m.state = ctState{}
		m.addState(true)
	default:
		m.otherMatches = true
	}
	return nil
}

func (o *nftOperands) loadsState() bool {
	return o.key == unix.NFT_CT_STATE && o.source == 0 && o.destination != 0 && !o.direction
}

func (o *nftOperands) masksNew(register uint32) bool {
	mask, ok := nativeEndian32(o.mask)
	return ok && mask == conntrackStateNew && isZero(o.xor) && o.operation == unix.NFT_BITWISE_BOOL &&
		o.source == register && o.destination != 0
}

func (o *nftOperands) comparesNew(step ctStep) bool {
	value, ok := nativeEndian32(o.value)
	switch {
	case !ok || step == ctIdle:
		return false
	case o.operation == unix.NFT_CMP_EQ:
		return value == conntrackStateNew
	default:
		return step == ctMasked && o.operation == unix.NFT_CMP_NEQ && value == 0
	}
}

func parseOperands(name string, data []byte) (nftOperands, error) {
	var operands nftOperands
	take := operands.takeCompare
	switch name {
	case "ct":
		take = operands.takeConntrack
	case "bitwise":
		take = operands.takeBitwise
	}
	err := eachAttribute(data, take)
	return operands, err
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
	return eachAttribute(data, func(kind uint16, value []byte) error {
		if kind == unix.NFTA_DATA_VALUE {
			*to = value
		}
		return nil
	})
}
