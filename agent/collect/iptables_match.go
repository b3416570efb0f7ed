package collect

import (
	"bytes"
	"encoding/binary"
)

// rule is what the owner of an iptables rule is told by, in either backend. Its bytes belong to whoever parsed them.
type rule struct {
	// to is the user-defined chain that it jumps or goes to, empty for none.
	to []byte
	// comment is the text of the comment match, empty for none.
	comment []byte
	// ctStateNew: there is one conntrack match and it is "--ctstate NEW".
	ctStateNew bool
	// setMatch: it matches an ipset.
	setMatch bool
	// sets are the indices of the ipsets that it matches or changes.
	sets []uint16
	// marks are the packet marks that it compares with or sets.
	marks []markUse
	// verdictMaps are the maps of nf_tables that its verdict is looked up in.
	verdictMaps [][]byte
	// otherMatches: there is anything else that kube-proxy's own jumps from built-in chains never have: a match, a goto,
	// a second comment.
	otherMatches bool
}

// addMatch takes a match of x_tables: its name without NUL, its revision and its raw data.
func (r *rule) addMatch(name []byte, revision uint32, info []byte) {
	switch string(name) {
	case "comment":
		r.setComment(cutNUL(info))
	case "conntrack":
		r.addState(isStateNew(revision, info))
	case "set":
		r.setMatch = true
		r.otherMatches = true
		if index, ok := setOfMatch(revision, info); ok {
			r.sets = append(r.sets, index)
		}
	case "mark":
		r.otherMatches = true
		r.addMark(markOfMatch(revision, info))
	default:
		r.otherMatches = true
	}
}

// addTarget takes a target of x_tables that is no verdict: its name without NUL, its revision and its raw data.
func (r *rule) addTarget(name []byte, revision uint32, info []byte) {
	switch string(name) {
	case "SET":
		r.sets = append(r.sets, setsOfTarget(revision, info)...)
	case "MARK":
		r.addMark(markOfTarget(revision, info))
	}
}

func (r *rule) addMark(use markUse, ok bool) {
	if ok {
		r.marks = append(r.marks, use)
	}
}

func (r *rule) setComment(text []byte) {
	r.otherMatches = r.otherMatches || len(r.comment) > 0
	r.comment = text
}

// addState takes a match on connection tracking and whether it is exactly the state NEW.
func (r *rule) addState(isNew bool) {
	r.otherMatches = r.otherMatches || !isNew || r.ctStateNew
	r.ctStateNew = r.ctStateNew || isNew
}

// setTarget takes the chain that the rule jumps or goes to.
func (r *rule) setTarget(chain []byte, isGoto bool) {
	r.otherMatches = r.otherMatches || isGoto || len(r.to) > 0
	r.to = chain
}

// Of include/uapi/linux/netfilter/xt_conntrack.h: XT_CONNTRACK_STATE, and XT_CONNTRACK_STATE_BIT(IP_CT_NEW).
const (
	conntrackMatchState = 1 << 0
	conntrackStateNew   = 1 << 3
)

// Offsets in struct xt_conntrack_mtinfo1, 2 and 3, which are alike up to the state mask: eight addresses of 16 bytes, the
// lifetimes, the protocol and four ports come first. Revision 1 has a mask of 8 bits, the others of 16.
const (
	conntrackMatchFlags  = 146
	conntrackInvertFlags = 148
	conntrackStateMask   = 150
	conntrackInfoSize    = 152
)

// isStateNew reports whether the data of a conntrack match says "--ctstate NEW" and nothing else. A revision that is not
// known says something else.
func isStateNew(revision uint32, info []byte) bool {
	if len(info) < conntrackInfoSize {
		return false
	}
	var mask uint16
	switch revision {
	case 1:
		mask = uint16(info[conntrackStateMask])
	case 2, 3:
		mask = binary.NativeEndian.Uint16(info[conntrackStateMask:])
	default:
		return false
	}
	return binary.NativeEndian.Uint16(info[conntrackMatchFlags:]) == conntrackMatchState &&
		binary.NativeEndian.Uint16(info[conntrackInvertFlags:]) == 0 &&
		mask == conntrackStateNew
}

func cutNUL(text []byte) []byte {
	if end := bytes.IndexByte(text, 0); end >= 0 {
		return text[:end]
	}
	return text
}
