package collect

import "encoding/binary"

// defaultMasquerade is the mark of packets that kube-proxy masquerades, bit 14, unless masqueradeBit is set
// (pkg/proxy/apis/config/v1alpha1/defaults.go).
const defaultMasquerade = 1 << 14

// markUse is a packet mark that a rule compares with, or sets: of the bits in mask, those in value.
type markUse struct{ value, mask uint32 }

// mentions reports whether the use is about one of these bits: one of them is in the value, or nothing but them is in the
// mask. A comparison of the whole mark with another value says nothing about them.
func (u markUse) mentions(bits uint32) bool {
	return u.value&bits != 0 || u.mask != 0 && u.mask&^bits == 0
}

// Sizes of struct xt_mark_mtinfo1 (mark, mask, invert) and xt_mark_tginfo2 (mark, mask), from
// include/uapi/linux/netfilter/xt_mark.h. Older revisions of both went with Linux 2.6.39.
const (
	markMatchRevision  = 1
	markMatchSize      = 9
	markTargetRevision = 2
	markTargetSize     = 8
)

// markOfMatch takes the data of a mark match.
func markOfMatch(revision uint32, info []byte) (markUse, bool) {
	if revision != markMatchRevision || len(info) < markMatchSize {
		return markUse{}, false
	}
	return markPair(info), true
}

// markOfTarget takes the data of a MARK target: the new mark is (old &^ mask) ^ value.
func markOfTarget(revision uint32, info []byte) (markUse, bool) {
	if revision != markTargetRevision || len(info) < markTargetSize {
		return markUse{}, false
	}
	return markPair(info), true
}

func markPair(info []byte) markUse {
	return markUse{value: binary.NativeEndian.Uint32(info), mask: binary.NativeEndian.Uint32(info[4:])}
}
