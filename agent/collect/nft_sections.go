package collect

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// readNFT reads the whole ruleset of nf_tables once and reports it as three sections: the tables of the iptables-nft
// backend in either family, and native tables.
func (r *ruleReader) readNFT(ctx context.Context) []*offrampv1.Section {
	sections, attempts, err := r.nftSections(ctx)
	if err != nil {
		sections = r.nftFailed(err)
	}
	for _, section := range sections {
		section.Volatile.Attempts = attempts
	}
	return sections
}

func (r *ruleReader) nftFailed(err error) []*offrampv1.Section {
	kinds := []offrampv1.SectionKind{kindNFTIPv4, kindNFTIPv6, kindNFT}
	sections := make([]*offrampv1.Section, 0, len(kinds))
	for _, kind := range kinds {
		r.remember(kind, nil)
		section := failed(kind, err)
		if errors.Is(err, errNoNFT) {
			section = absent(kind)
		}
		sections = append(sections, section)
	}
	return sections
}

func (r *ruleReader) nftSections(ctx context.Context) ([]*offrampv1.Section, uint32, error) {
	attempts := uint32(0)
	sections, err := withNFT(r.mods, r.seed, func(reader *nftReader) ([]*offrampv1.Section, error) {
		masquerade := r.masqueradeBits()
		if kept := r.keptSections(ctx, reader, masquerade); kept != nil {
			attempts = 1
			return kept, nil
		}
		sections, readings, err := repeat(ctx, func(ctx context.Context) ([]*offrampv1.Section, error) {
			return r.readNFTOnce(ctx, reader, masquerade)
		})
		attempts = readings
		return sections, err
	})
	return sections, attempts, err
}

func (r *ruleReader) readNFTOnce(ctx context.Context, reader *nftReader, masquerade uint32) ([]*offrampv1.Section, error) {
	var names setNames
	reader.masquerade = masquerade
	snapshot, err := reader.snapshot(ctx, func(snapshot *nftSnapshot) error {
		var err error
		if snapshot.holdsSets() {
			names, err = readSetNames(ctx, r.mods)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	sections, err := r.reportNFT(snapshot, names)
	if err == nil {
		r.keep(snapshot, masquerade, sections)
	}
	return sections, err
}

func (r *ruleReader) reportNFT(snapshot *nftSnapshot, names setNames) ([]*offrampv1.Section, error) {
	services, err := r.digestServices(snapshot)
	if err != nil {
		return nil, err
	}
	ipv4, err := snapshot.ipv4.nameSets(kindNFTIPv4, names)
	if err != nil {
		return nil, err
	}
	ipv6, err := snapshot.ipv6.nameSets(kindNFTIPv6, names)
	if err != nil {
		return nil, err
	}
	native, err := snapshot.native.nameSets(kindNFT, names)
	if err != nil {
		return nil, err
	}
	r.remember(kindNFTIPv4, ipv4)
	r.remember(kindNFTIPv6, ipv6)
	r.remember(kindNFT, native)
	return []*offrampv1.Section{
		iptablesSection(kindNFTIPv4, snapshot.ipv4), iptablesSection(kindNFTIPv6, snapshot.ipv6), snapshot.nativeSection(services),
	}, nil
}

// digestServices names the list of Services that kube-proxy's tables serve; nil when there is no such table.
func (r *ruleReader) digestServices(snapshot *nftSnapshot) (*offrampv1.ListDigest, error) {
	if len(snapshot.kubeProxyTables()) == 0 {
		return nil, nil //nolint:nilnil // no list, and that is no error
	}
	r.mu.Lock()
	kept := r.services
	r.mu.Unlock()
	if kept.list != nil && equalServices(kept.maps, snapshot.services) {
		return kept.list, nil
	}
	items, err := serviceItems(snapshot.services)
	if err != nil {
		return nil, err
	}
	list := facts.ListDigest(offrampv1.ListName_LIST_NAME_NFTABLES_SERVICES, items)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.services = keptServices{summaries(snapshot.services), list}
	return list, nil
}

// readServiceList reads the Service maps alone.
func (r *ruleReader) readServiceList(ctx context.Context) ([]string, error) {
	return withNFT(r.mods, r.seed, func(reader *nftReader) ([]string, error) {
		items, _, err := repeat(ctx, func(ctx context.Context) ([]string, error) {
			snapshot, err := reader.frame(ctx, func(snapshot *nftSnapshot) error {
				return reader.addServices(ctx, snapshot)
			})
			if err != nil {
				return nil, err
			}
			return serviceItems(snapshot.services)
		})
		return items, err
	})
}

// keptSections returns what was read last if nothing was committed since.
func (r *ruleReader) keptSections(ctx context.Context, reader *nftReader, masquerade uint32) []*offrampv1.Section {
	r.mu.Lock()
	kept := r.kept
	r.mu.Unlock()
	if kept == nil || kept.masquerade != masquerade || r.host.Now().Sub(kept.readAt) > maxKeptRuleset {
		return nil
	}
	generation, err := reader.generation(ctx)
	if err != nil || generation != kept.generation {
		return nil
	}
	return clones(kept.sections)
}

func (r *ruleReader) keep(snapshot *nftSnapshot, masquerade uint32, sections []*offrampv1.Section) {
	kept := &keptRuleset{snapshot.generation, masquerade, r.host.Now(), clones(sections)}
	if snapshot.movesByItself() {
		kept = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = kept
}

// clones copies what differs from one reading to the next; the stable parts are never written to.
func clones(sections []*offrampv1.Section) []*offrampv1.Section {
	copies := make([]*offrampv1.Section, 0, len(sections))
	for _, section := range sections {
		volatile, _ := proto.Clone(section.GetVolatile()).(*offrampv1.SectionVolatile)
		copies = append(copies, &offrampv1.Section{Kind: section.GetKind(), Stable: section.GetStable(), Volatile: volatile})
	}
	return copies
}
