package collect

import "encoding/binary"

// Of include/uapi/linux/netfilter/xt_set.h. Every revision of the match begins with the index of its set: struct
// xt_set_info_match_v0 up to v4. Revision 4 is the newest (kernel 3.14 and later).
const (
	newestSetMatch  = 4
	newestSetTarget = 3
	// noSet is IPSET_INVALID_ID: the target has a place for each of add, delete and map, and rarely uses all.
	noSet = 65535
	// setInfoSize and oldSetInfoSize are the sizes of xt_set_info and xt_set_info_v0: index, dimension, flags.
	setInfoSize    = 4
	oldSetInfoSize = 32
)

// setOfMatch returns the index of the set that a match of x_tables looks into. False where it cannot be told.
func setOfMatch(revision uint32, info []byte) (uint16, bool) {
	if revision > newestSetMatch || len(info) < setInfoSize {
		return 0, false
	}
	return binary.NativeEndian.Uint16(info), true
}

// setsOfTarget returns the indices of the sets that a SET target adds to, deletes from and maps by.
func setsOfTarget(revision uint32, info []byte) []uint16 {
	size, places := setInfoSize, 2
	switch {
	case revision == 0:
		size = oldSetInfoSize
	case revision == newestSetTarget:
		places = 3
	case revision > newestSetTarget:
		return nil
	}
	var sets []uint16
	for place := range places {
		if at := place * size; len(info) >= at+setInfoSize {
			if index := binary.NativeEndian.Uint16(info[at:]); index != noSet {
				sets = append(sets, index)
			}
		}
	}
	return sets
}
