package facts

import (
	"crypto/sha256"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// part checks a count that is some of a total.
func (b *bounds) part(what string, count, total uint64) {
	if count > total {
		b.failf("it claims %d %s of %d in all", count, what, total)
	}
}

// owners checks a split by owner. The sum cannot overflow: it is compared after each step with a total that was checked.
func (b *bounds) owners(what string, owners []*offrampv1.OwnerCount, total uint64) {
	b.list("owners", len(owners), maxOwners)
	var sum uint64
	for _, owner := range owners {
		b.part(what+" of one owner", owner.GetCount(), total)
		if sum += owner.GetCount(); sum > total {
			b.failf("the owners of %s sum up to more than %d", what, total)
			return
		}
	}
}

// perOwner checks that each owner has at most so many samples.
func perOwner[T interface{ GetOwner() string }](b *bounds, what string, samples []T, most int) {
	seen := map[string]int{}
	for _, sample := range samples {
		seen[sample.GetOwner()]++
	}
	b.list("owners", len(seen), maxOwners)
	for _, count := range seen {
		b.list(what+" of one owner", count, most)
	}
}

// digest checks the name of a list. A name of a newer version was rewritten to the unspecified one by then and is let be.
func (b *bounds) digest(list *offrampv1.ListDigest, name offrampv1.ListName, total uint64) {
	if list == nil || list.GetName() == offrampv1.ListName_LIST_NAME_UNSPECIFIED {
		return
	}
	if list.GetName() != name {
		b.failf("list %v is not of this section", list.GetName())
	}
	if len(list.GetDigest()) != sha256.Size {
		b.failf("the digest of a list has %d bytes instead of %d", len(list.GetDigest()), sha256.Size)
	}
	b.part("items in a list", list.GetCount(), total)
}
