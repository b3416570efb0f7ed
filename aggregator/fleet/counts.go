package fleet

import (
	"cmp"
	"maps"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func phaseCounts(phases map[offrampv1.Phase]uint64) []*offrampv1.PhaseCount {
	counts := make([]*offrampv1.PhaseCount, 0, len(phases))
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		counts = append(counts, &offrampv1.PhaseCount{Phase: phase, Nodes: phases[phase]})
	}
	return counts
}

// groupCounts lists the largest groups, sorted by name.
func groupCounts(groups map[string]*groupTally) []*offrampv1.GroupCount {
	var counts []*offrampv1.GroupCount
	for _, group := range groups {
		group.count.Phases = phaseCounts(group.phases)
		counts = append(counts, group.count)
	}
	slices.SortFunc(counts, func(a, b *offrampv1.GroupCount) int {
		return cmp.Or(cmp.Compare(b.GetNodes(), a.GetNodes()), cmp.Compare(a.GetName(), b.GetName()))
	})
	counts = counts[:min(len(counts), maxGroups)]
	slices.SortFunc(counts, func(a, b *offrampv1.GroupCount) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return counts
}
