package collect

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxKeptRuleset is how long a reading is believed while the generation says that nothing was committed.
const maxKeptRuleset = 10 * time.Minute

// ruleReader reads iptables rules and nftables of a node, and remembers what is dear to read. Safe for use by several
// goroutines.
type ruleReader struct {
	host Host
	mods *modules
	// seed makes the fingerprints of one reading comparable with those of another.
	seed maphash.Seed

	mu         sync.Mutex
	masquerade uint32
	holders    map[offrampv1.SectionKind]setHolders
	services   keptServices
	kept       *keptRuleset
}

// keptRuleset is a reading of nf_tables that nothing in it can outdate but a commit.
type keptRuleset struct {
	generation, masquerade uint32
	readAt                 time.Time
	sections               []*offrampv1.Section
}

// keptServices is the digest of the Service maps that were read last: what is in them changes far less often than the
// ruleset around them does.
type keptServices struct {
	maps []serviceMap
	list *offrampv1.ListDigest
}

func newRuleReader(host Host, mods *modules) *ruleReader {
	return &ruleReader{
		host: host, mods: mods, seed: maphash.MakeSeed(), masquerade: defaultMasquerade,
		holders: map[offrampv1.SectionKind]setHolders{},
	}
}

// setMasquerade tells which bits of a packet's mark mean "masquerade", as kube-proxy's settings say; without them it is
// the default.
func (r *ruleReader) setMasquerade(settings *offrampv1.KubeProxySettings) {
	bits := uint32(0)
	if settings != nil {
		for _, bit := range []int32{settings.GetIptablesMasqueradeBit(), settings.GetNftablesMasqueradeBit()} {
			if bit >= 0 && bit < 32 {
				bits |= 1 << bit
			}
		}
	}
	if bits == 0 {
		bits = defaultMasquerade
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.masquerade = bits
}

func (r *ruleReader) masqueradeBits() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.masquerade
}

// remember keeps who holds which set, as of the latest reading of a section; nil when that failed.
func (r *ruleReader) remember(kind offrampv1.SectionKind, holders setHolders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders[kind] = holders
}

// joinHolders adds who holds each set to the section of ipsets, as of the latest reading of the rules. Sets have the names
// that they had at that moment: one that is held cannot be renamed.
func (r *ruleReader) joinHolders(section *offrampv1.Section) *offrampv1.Section {
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds := slices.Sorted(maps.Keys(r.holders))
	for _, set := range section.GetStable().GetIpsets().GetSamples() {
		for _, kind := range kinds {
			set.Holders = append(set.Holders, r.holders[kind][set.GetName()]...)
		}
		set.Holders = set.Holders[:min(len(set.Holders), maxSamples)]
	}
	return section
}
