package collect

import (
	"maps"
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ownerCounter counts artefacts by owner.
type ownerCounter map[kubeproxy.Owner]uint64

// add counts one more and returns how many that owner has now.
func (c ownerCounter) add(owner kubeproxy.Owner) uint64 {
	c[owner]++
	return c[owner]
}

// counts lists the owners, sorted.
func (c ownerCounter) counts() []*offrampv1.OwnerCount {
	list := make([]*offrampv1.OwnerCount, 0, len(c))
	for _, owner := range slices.Sorted(maps.Keys(c)) {
		list = append(list, &offrampv1.OwnerCount{Owner: string(owner), Count: c[owner]})
	}
	return list
}
