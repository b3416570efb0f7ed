package collect

import (
	"encoding/binary"
	"errors"
)

var errLegacyTable = errors.New("malformed iptables-legacy table")

// legacyInfo is struct ipt_getinfo, without the name.
type legacyInfo struct {
	validHooks           uint32
	hookEntry, underflow [legacyHooks]uint32
	entries, size        uint32
}

// legacyEntry is one ipt_entry.
type legacyEntry struct {
	offset, next uint32
	conditions   []byte
	isGoto       bool
	matches      []byte
	targetName   []byte
	targetData   []byte
	revision     uint32 // of the target
}

// eachEntry walks the entries of a table.
func (l *legacyLayout) eachEntry(blob []byte, visit func(*legacyEntry) error) error {
	for offset := 0; offset < len(blob); {
		entry, err := l.entry(blob, offset)
		if err != nil {
			return err
		}
		if err := visit(&entry); err != nil {
			return err
		}
		offset = int(entry.next)
	}
	return nil
}

func (l *legacyLayout) entry(blob []byte, offset int) (legacyEntry, error) {
	data := blob[offset:]
	if len(data) < l.header {
		return legacyEntry{}, errLegacyTable
	}
	target := int(binary.NativeEndian.Uint16(data[l.target:]))
	next := int(binary.NativeEndian.Uint16(data[l.target+2:]))
	if target < l.header || next < target+partHeader || next > len(data) {
		return legacyEntry{}, errLegacyTable
	}
	name, revision, value, size, err := legacyPart(data[target:next])
	if err != nil || target+size > next {
		return legacyEntry{}, errLegacyTable
	}
	return legacyEntry{
		offset: uint32(offset), next: uint32(offset + next), //nolint:gosec // a table is at most maxLegacyTable long
		conditions: data[:l.conditions],
		isGoto:     data[l.flags]&l.isGoto != 0,
		matches:    data[l.header:target],
		targetName: name, targetData: value, revision: revision,
	}, nil
}

// legacyPart takes the match or target apart that begins data.
func legacyPart(data []byte) (name []byte, revision uint32, value []byte, size int, err error) {
	if len(data) < partHeader {
		return nil, 0, nil, 0, errLegacyTable
	}
	size = int(binary.NativeEndian.Uint16(data))
	if size < partHeader || size > len(data) {
		return nil, 0, nil, 0, errLegacyTable
	}
	name = cutNUL(data[partName : partName+partNameSize])
	return name, uint32(data[partRevision]), data[partHeader:size], size, nil
}

// rule tells what an entry is, but for the chain it jumps to.
func (e *legacyEntry) rule() (rule, error) {
	rule := rule{otherMatches: !isZero(e.conditions)}
	for rest := e.matches; len(rest) > 0; {
		name, revision, info, size, err := legacyPart(rest)
		if err != nil {
			return rule, err
		}
		rule.addMatch(name, revision, info)
		rest = rest[size:]
	}
	rule.addTarget(e.targetName, e.revision, e.targetData)
	return rule, nil
}

// jump returns the offset that the entry jumps to, and false for a verdict, an extension, or a rule without a target,
// which is kept as a jump to the entry after it.
func (e *legacyEntry) jump() (uint32, bool) {
	if len(e.targetName) > 0 || len(e.targetData) < 4 {
		return 0, false
	}
	verdict := int32(binary.NativeEndian.Uint32(e.targetData))        //nolint:gosec // negative numbers are verdicts
	return uint32(verdict), verdict >= 0 && uint32(verdict) != e.next //nolint:gosec // not negative here
}

// drops reports whether the entry is a plain DROP, as a built-in chain ends in when its policy is one: -NF_DROP - 1.
func (e *legacyEntry) drops() bool {
	return len(e.targetName) == 0 && len(e.targetData) >= 4 && int32(binary.NativeEndian.Uint32(e.targetData)) == -1 //nolint:gosec // a signed number
}

// chainHead returns the name of the user-defined chain that the entry begins. The last entry of a table is a head too.
func (e *legacyEntry) chainHead() ([]byte, bool) {
	if string(e.targetName) != "ERROR" {
		return nil, false
	}
	return cutNUL(e.targetData), true
}
