package collect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const modeUnsaid = offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED

// Kept is what a Memory keeps: what history says, and what it was told last, which the next reading is compared with.
type Kept struct {
	// Since is when the memory begins. All times are the node's.
	Since time.Time
	// Mode, ProxyVersion ("v1.37.2") and BootID are the last that were seen; zero before the first.
	Mode                 offrampv1.ProxyMode
	ProxyVersion, BootID string
	// NoneSince is when the present stretch of readings without a kube-proxy began, NoneSeen its latest reading. NoneSince is
	// zero while one is seen, or the processes are not in sight.
	NoneSince, NoneSeen time.Time
	// ExcludeCIDRs is ipvs.excludeCIDRs as last seen, masked; empty where none ever was.
	ExcludeCIDRs []string
	// Changes are the newest 20, Entries the newest 50, oldest first, without clean-ups and restores.
	Changes []*offrampv1.ModeChange
	Entries []*offrampv1.HistoryEntry
}

// follow puts what was seen here after what was kept earlier. What the next reading is compared with is the earlier one's.
func (k *Kept) follow(earlier *Kept) {
	k.Changes = append(slices.Clone(earlier.Changes), k.Changes...)
	k.Entries = append(slices.Clone(earlier.Entries), k.Entries...)
	k.Since = earlier.Since
	if earlier.Mode != modeUnsaid {
		k.Mode = earlier.Mode
	}
	k.ProxyVersion, k.BootID = cmp.Or(earlier.ProxyVersion, k.ProxyVersion), cmp.Or(earlier.BootID, k.BootID)
	if len(k.ExcludeCIDRs) == 0 {
		k.ExcludeCIDRs = earlier.ExcludeCIDRs
	}
	if k.NoneSeen.IsZero() {
		k.NoneSince, k.NoneSeen = earlier.NoneSince, earlier.NoneSeen
	}
	k.bound()
}

func (k *Kept) bound() {
	k.Changes = k.Changes[max(0, len(k.Changes)-maxModeChanges):]
	k.Entries = k.Entries[max(0, len(k.Entries)-maxEntries):]
}

// notAfter corrects what a clock that was ahead has put into the future: it happened by now at the latest. A stretch
// without a kube-proxy is none of it, since there an error in the other direction does harm; see seeProxy.
func (k *Kept) notAfter(now time.Time) {
	if k.Since.After(now) {
		k.Since = now
	}
	for i, change := range k.Changes {
		if change.GetAt().AsTime().After(now) {
			k.Changes[i] = &offrampv1.ModeChange{At: timestamppb.New(now), From: change.GetFrom(), To: change.GetTo()}
		}
	}
	for i, entry := range k.Entries {
		if entry.GetAt().AsTime().After(now) {
			k.Entries[i] = &offrampv1.HistoryEntry{At: timestamppb.New(now), Kind: entry.GetKind(), What: entry.GetWhat()}
		}
	}
}

// modeWord is "ipvs" for PROXY_MODE_IPVS.
func modeWord(mode offrampv1.ProxyMode) string {
	return strings.ToLower(strings.TrimPrefix(mode.String(), "PROXY_MODE_"))
}

// glanceAt takes from a reading what history is about.
func glanceAt(kernel, proxy *offrampv1.Section) glance {
	facts, told := kernel.GetStable().GetKernel(), proxy.GetStable().GetKubeProxy()
	what := glance{
		mode: told.GetRunningMode(), version: told.GetVersion(), bootID: facts.GetBootId(), release: facts.GetRelease(),
	}
	if booted := kernel.GetVolatile().GetKernel().GetBootedAt(); booted != nil {
		what.booted = booted.AsTime()
	}
	return what
}
