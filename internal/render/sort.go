package render

import (
	"cmp"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// SortKeys are the words that SortNodes takes.
func SortKeys() []string {
	return []string{"name", "pool", "kernel", "mode", "phase", "ready", "leftovers", "seen"}
}

// SortNodes puts nodes in order by one of SortKeys, those that want attention first: blocked before unknown before ready, many
// leftovers before few, long unheard before just heard. Nodes that are the same there are in order of their names.
func SortNodes(nodes []*offrampv1.NodeSummary, key string) {
	slices.SortStableFunc(nodes, func(a, b *offrampv1.NodeSummary) int {
		return cmp.Or(compareBy(key, a, b), cmp.Compare(a.GetNode(), b.GetNode()))
	})
}

func compareBy(key string, a, b *offrampv1.NodeSummary) int {
	x, y := a.GetAssessment(), b.GetAssessment()
	switch key {
	case "pool":
		return cmp.Compare(a.GetPool(), b.GetPool())
	case "kernel":
		return compareReleases(a.GetKernelRelease(), b.GetKernelRelease())
	case "mode":
		return cmp.Compare(Word(x.GetRunningMode()), Word(y.GetRunningMode()))
	case "phase":
		return cmp.Compare(x.GetPhase(), y.GetPhase())
	case "ready":
		return cmp.Compare(urgency(x.GetReady()), urgency(y.GetReady()))
	case "leftovers":
		return cmp.Compare(total(y.GetLeftovers()), total(x.GetLeftovers()))
	case "seen":
		return a.GetLastSeen().AsTime().Compare(b.GetLastSeen().AsTime())
	}
	return 0
}

func urgency(verdict offrampv1.Verdict) int {
	switch verdict {
	case offrampv1.Verdict_VERDICT_BLOCKED:
		return 0
	case offrampv1.Verdict_VERDICT_READY:
		return 2
	}
	return 1
}

// compareReleases compares the numbers in two kernel releases, so that 5.9 comes before 5.14; what is equal there goes by text.
func compareReleases(a, b string) int {
	return cmp.Or(slices.Compare(releaseNumbers(a), releaseNumbers(b)), cmp.Compare(a, b))
}

func releaseNumbers(release string) []int {
	var numbers []int
	in := false
	for _, r := range kernelNumbers(release) {
		digit := r >= '0' && r <= '9'
		if digit && !in {
			numbers = append(numbers, 0)
		}
		if last := len(numbers) - 1; digit && numbers[last] < 1e6 {
			numbers[last] = 10*numbers[last] + int(r-'0')
		}
		in = digit
	}
	return numbers
}
