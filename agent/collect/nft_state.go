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

// addStateStep takes an expression that may be part of "ct state new". Any other use is another match.
func (m *nftMatches) addStateStep(kind nftOperation, operands *nftOperands) {
	switch {
	case m.otherMatches: // nothing can make it kube-proxy's own jump any more
	case kind == operationCT && m.state.step == ctIdle && operands.loadsState():
		m.state = ctState{ctLoaded, operands.destination}
	case kind == operationBitwise && m.state.step == ctLoaded && operands.masksNew(m.state.register):
		m.state = ctState{ctMasked, operands.destination}
	case kind == operationCompare && operands.source == m.state.register && operands.comparesNew(m.state.step):
		m.state = ctState{}
		m.addState(true)
	default:
		m.otherMatches = true
	}
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
