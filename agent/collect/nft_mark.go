package collect

import "golang.org/x/sys/unix"

// markState follows the register that the packet's mark was loaded into, or a value that may become it: what is in the
// register is (mark & kept) ^ flipped.
type markState struct {
	register      uint32 // 0 for none
	kept, flipped uint32
}

// loadConstant takes a value that a rule loads.
func (s *markState) loadConstant(immediate *nftImmediate) {
	if value, ok := nativeEndian32(immediate.value); ok {
		*s = markState{register: immediate.register, flipped: value}
	}
}

// addMeta takes an expression that reads or writes something about the packet; only its mark is looked at.
func (m *nftMatches) addMeta(data []byte) error {
	var operands nftOperands
	if err := operands.parse(operationMeta, data); err != nil || operands.key != unix.NFT_META_MARK {
		return err
	}
	if use, ok := m.mark.step(operationMeta, &operands); ok {
		m.marks = append(m.marks, use)
	}
	return nil
}

// step takes an expression. True where it compares the mark, or sets it.
func (s *markState) step(kind nftOperation, operands *nftOperands) (markUse, bool) {
	held := s.register != 0 && operands.source == s.register
	switch {
	case kind == operationMeta && operands.source == 0:
		*s = markState{register: operands.destination, kept: ^uint32(0)}
	case kind == operationMeta && held:
		return markUse{value: s.flipped, mask: ^s.kept}, true
	case kind == operationBitwise && held:
		s.change(operands)
	case kind == operationCompare && held:
		value, ok := nativeEndian32(operands.value)
		return markUse{value: value ^ s.flipped, mask: s.kept}, ok && s.kept != 0
	case operands.destination != 0 && operands.destination == s.register:
		*s = markState{} // overwritten by something else
	}
	return markUse{}, false
}

// change takes (register & mask) ^ xor. Shifts and operations on two registers are not followed.
func (s *markState) change(operands *nftOperands) {
	mask, hasMask := nativeEndian32(operands.mask)
	xor, hasXor := nativeEndian32(operands.xor)
	if !hasMask || !hasXor || operands.operation != unix.NFT_BITWISE_BOOL {
		*s = markState{}
		return
	}
	*s = markState{register: operands.destination, kept: s.kept & mask, flipped: s.flipped&mask ^ xor}
}
