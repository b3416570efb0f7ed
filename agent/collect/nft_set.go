package collect

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// addNamedSet takes a set or map that has a name of its own.
func (t *nftTable) addNamedSet(object *nftObject) {
	t.sets++
	set := &offrampv1.NftSet{
		Name: printable(object.name),
		Map:  object.flags&(unix.NFT_SET_MAP|nftSetHasObjects) != 0,
	}
	// What packets add to, and time takes from, would be news with every packet.
	if object.counted && object.flags&nftSetTimesOut == 0 {
		count := uint64(object.count)
		set.Elements = &count
	}
	at, _ := slices.BinarySearchFunc(t.setSamples, set, largerFirst)
	t.setSamples = slices.Insert(t.setSamples, at, set)
	t.setSamples = t.setSamples[:min(len(t.setSamples), maxSamples)]
	for _, feature := range newerFeatures(object) {
		at, found := slices.BinarySearch(t.newer, feature)
		if !found {
			t.newer = slices.Insert(t.newer, at, feature)
			t.newer = t.newer[:min(len(t.newer), maxSamples)]
		}
	}
}

func largerFirst(a, b *offrampv1.NftSet) int {
	return cmp.Or(-cmp.Compare(a.GetElements(), b.GetElements()), cmp.Compare(a.GetName(), b.GetName()))
}

// isVerdictMap reports whether the elements of a map are verdicts.
func (o *nftObject) isVerdictMap() bool {
	return o.flags&unix.NFT_SET_MAP != 0 && o.dataType == nftDataVerdict
}
