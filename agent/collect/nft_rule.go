package collect

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nftMatches is what the matches of a rule have been found to be, expression by expression.
type nftMatches struct {
	rule
	state ctState
}

// parseNFTRule tells what the rule of an iptables-nft table is, from its expressions. An expression that is not known
// counts as another match: it makes a rule less kube-proxy's, never more.
func parseNFTRule(object *nftObject) (rule, error) {
	var matches nftMatches
	err := eachAttribute(object.expressions, func(kind uint16, element []byte) error {
		if kind != unix.NFTA_LIST_ELEM {
			return errMalformed
		}
		name, data, err := splitExpression(element)
		if err != nil {
			return err
		}
		return matches.add(name, data)
	})
	// A state that was loaded and never compared belongs to a match that is not known.
	matches.otherMatches = matches.otherMatches || matches.state.step != ctIdle
	if len(matches.comment) == 0 {
		matches.comment = nftComment(object.userdata)
	}
	return matches.rule, err
}

func splitExpression(element []byte) (name, data []byte, err error) {
	err = eachAttribute(element, func(kind uint16, value []byte) error {
		switch kind {
		case unix.NFTA_EXPR_NAME:
			name = cutNUL(value)
		case unix.NFTA_EXPR_DATA:
			data = value
		}
		return nil
	})
	if err == nil && len(name) == 0 {
		err = errMalformed
	}
	return name, data, err
}

func (m *nftMatches) add(name, data []byte) error {
	switch string(name) {
	case "counter":
		return nil
	case "match":
		return m.addXTMatch(data)
	case "immediate":
		return m.addImmediate(data)
	case "ct", "bitwise", "cmp":
		return m.addStateStep(string(name), data)
	default:
		m.otherMatches = true
		return nil
	}
}

func (m *nftMatches) addXTMatch(data []byte) error {
	var name, info []byte
	var revision uint32
	err := eachAttribute(data, func(kind uint16, value []byte) error {
		switch kind {
		case unix.NFTA_MATCH_NAME:
			name = cutNUL(value)
		case unix.NFTA_MATCH_REV:
			return bigEndian32(value, &revision)
		case unix.NFTA_MATCH_INFO:
			info = value
		}
		return nil
	})
	m.addMatch(name, revision, info)
	return err
}

// addImmediate takes a verdict; anything else that is loaded at once is part of some other match.
func (m *nftMatches) addImmediate(data []byte) error {
	var register uint32
	var verdict []byte
	err := eachAttribute(data, func(kind uint16, value []byte) error {
		switch kind {
		case unix.NFTA_IMMEDIATE_DREG:
			return bigEndian32(value, &register)
		case unix.NFTA_IMMEDIATE_DATA:
			return eachAttribute(value, func(kind uint16, value []byte) error {
				if kind == unix.NFTA_DATA_VERDICT {
					verdict = value
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if register != unix.NFT_REG_VERDICT || verdict == nil {
		m.otherMatches = true
		return nil
	}
	return m.addVerdict(verdict)
}

func (m *nftMatches) addVerdict(data []byte) error {
	var code uint32
	var chain []byte
	err := eachAttribute(data, func(kind uint16, value []byte) error {
		switch kind {
		case unix.NFTA_VERDICT_CODE:
			return bigEndian32(value, &code)
		case unix.NFTA_VERDICT_CHAIN:
			chain = cutNUL(value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch verdict := int32(code); verdict {
	case unix.NFT_JUMP, unix.NFT_GOTO:
		if len(chain) == 0 {
			return errMalformed
		}
		m.setTarget(chain, verdict == unix.NFT_GOTO)
	}
	return nil
}

// nativeEndian32 reads a value that nf_tables keeps as the CPU does.
func nativeEndian32(value []byte) (uint32, bool) {
	if len(value) != 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(value), true
}
