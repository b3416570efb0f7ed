package collect

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nftMatches is what the matches of a rule have been found to be, expression by expression.
type nftMatches struct {
	rule
	state ctState
	mark  markState
}

// parseNFTRule tells what the rule of an iptables-nft table is, from its expressions. An expression that is not known
// counts as another match: it makes a rule less kube-proxy's, never more.
func parseNFTRule(object *nftObject) (rule, error) {
	var matches nftMatches
	err := eachExpression(object.expressions, matches.add)
	// A state that was loaded and never compared belongs to a match that is not known.
	matches.otherMatches = matches.otherMatches || matches.state.step != ctIdle
	if len(matches.comment) == 0 {
		matches.comment = nftComment(object.userdata)
	}
	return matches.rule, err
}

// eachExpression walks NFTA_RULE_EXPRESSIONS.
func eachExpression(expressions []byte, visit func(name, data []byte) error) error {
	list := attributes{rest: expressions}
	for list.next() {
		if list.kind != unix.NFTA_LIST_ELEM {
			return errMalformed
		}
		name, data, err := splitExpression(list.value)
		if err == nil {
			err = visit(name, data)
		}
		if err != nil {
			return err
		}
	}
	return list.err
}

func splitExpression(element []byte) (name, data []byte, err error) {
	parts := attributes{rest: element}
	for parts.next() {
		switch parts.kind {
		case unix.NFTA_EXPR_NAME:
			name = cutNUL(parts.value)
		case unix.NFTA_EXPR_DATA:
			data = parts.value
		}
	}
	if parts.err == nil && len(name) == 0 {
		parts.err = errMalformed
	}
	return name, data, parts.err
}

func (m *nftMatches) add(name, data []byte) error {
	switch string(name) {
	case "counter":
		return nil
	case "match":
		extension, err := parseExtension(data)
		m.addMatch(extension.name, extension.revision, extension.info)
		return err
	case "target":
		m.otherMatches = true
		extension, err := parseExtension(data)
		m.addTarget(extension.name, extension.revision, extension.info)
		return err
	case "immediate":
		return m.addImmediate(data)
	case "ct":
		return m.addOperation(operationCT, data)
	case "bitwise":
		return m.addOperation(operationBitwise, data)
	case "cmp":
		return m.addOperation(operationCompare, data)
	case "meta":
		m.otherMatches = true
		return m.addMeta(data)
	case "lookup":
		m.otherMatches = true
		return m.addLookup(data)
	default:
		m.otherMatches = true
		return nil
	}
}

// nftExtension is a match or a target of x_tables inside a rule of nf_tables.
type nftExtension struct {
	name, info []byte
	revision   uint32
}

// parseExtension takes a "match" or a "target" apart; the numbers of their attributes are the same.
func parseExtension(data []byte) (nftExtension, error) {
	var extension nftExtension
	parts := attributes{rest: data}
	for parts.next() {
		switch parts.kind {
		case unix.NFTA_MATCH_NAME:
			extension.name = cutNUL(parts.value)
		case unix.NFTA_MATCH_REV:
			if err := bigEndian32(parts.value, &extension.revision); err != nil {
				return extension, err
			}
		case unix.NFTA_MATCH_INFO:
			extension.info = parts.value
		}
	}
	return extension, parts.err
}

// addImmediate takes a verdict; anything else that is loaded at once is part of some other match.
func (m *nftMatches) addImmediate(data []byte) error {
	immediate, err := parseImmediate(data)
	switch {
	case err != nil:
		return err
	case immediate.isVerdict():
		return m.addVerdict(&immediate)
	}
	m.otherMatches = true
	m.mark.loadConstant(&immediate)
	return nil
}

func (m *nftMatches) addVerdict(immediate *nftImmediate) error {
	switch immediate.code {
	case unix.NFT_JUMP, unix.NFT_GOTO:
		if len(immediate.chain) == 0 {
			return errMalformed
		}
		m.setTarget(immediate.chain, immediate.code == unix.NFT_GOTO)
	}
	return nil
}

// addLookup remembers the map that a verdict is looked up in.
func (m *nftMatches) addLookup(data []byte) error {
	var set []byte
	destination := ^uint32(0)
	parts := attributes{rest: data}
	for parts.next() {
		switch parts.kind {
		case unix.NFTA_LOOKUP_SET:
			set = cutNUL(parts.value)
		case unix.NFTA_LOOKUP_DREG:
			if err := bigEndian32(parts.value, &destination); err != nil {
				return err
			}
		}
	}
	if destination == unix.NFT_REG_VERDICT {
		m.verdictMaps = append(m.verdictMaps, set)
	}
	return parts.err
}

// nativeEndian32 reads a value that nf_tables keeps as the CPU does.
func nativeEndian32(value []byte) (uint32, bool) {
	if len(value) != 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(value), true
}
