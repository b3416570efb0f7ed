package collect

import (
	"bytes"
	"cmp"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// nativeMarks are rules of native tables, kube-proxy's own left out, that set or match the masquerade mark.
type nativeMarks struct {
	samples []*offrampv1.NftMark
	count   uint64
}

// addNativeMark looks for the masquerade mark in a rule. What is compared by a look-up in a set or map is not seen, nor is a
// rule that cannot be taken apart.
func (s *nftSnapshot) addNativeMark(t *nftTable, object *nftObject) {
	if t.iptables != nil || !bytes.Contains(object.expressions, []byte("meta\x00")) || t.isKubeProxys() {
		return
	}
	var matches nftMatches
	found, sets := false, false
	err := eachExpression(object.expressions, func(name, data []byte) error {
		seen := len(matches.marks)
		err := matches.add(name, data)
		for _, use := range matches.marks[seen:] {
			if use.mentions(s.native.masquerade) {
				found, sets = true, sets || string(name) == "meta" // else it is compared, by "cmp"
			}
		}
		return err
	})
	if err != nil || !found {
		return
	}
	s.marks.count++
	if len(s.marks.samples) < maxReferences {
		s.marks.samples = append(s.marks.samples, &offrampv1.NftMark{
			Family: nftFamily(t.family), Table: printable([]byte(t.name)), Chain: printable(object.name), Sets: sets,
		})
	}
}

// sorted sorts the samples; those of one chain stay in its order.
func (m *nativeMarks) sorted() []*offrampv1.NftMark {
	slices.SortStableFunc(m.samples, func(a, b *offrampv1.NftMark) int {
		return cmp.Or(cmp.Compare(a.GetFamily(), b.GetFamily()), cmp.Compare(a.GetTable(), b.GetTable()), cmp.Compare(a.GetChain(), b.GetChain()))
	})
	return m.samples
}
