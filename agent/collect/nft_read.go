package collect

import (
	"context"
	"errors"
	"hash/maphash"

	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kindNFTIPv4 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4
	kindNFTIPv6 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6
	kindNFT     = offrampv1.SectionKind_SECTION_KIND_NFTABLES
)

// errNoNFT says that the kernel has no nf_tables.
var errNoNFT = errors.New("the kernel has no nf_tables")

// readNetfilter reads the whole ruleset of nf_tables once and reports it as three sections: the tables of the
// iptables-nft backend in either family, and native tables.
func readNetfilter(ctx context.Context, _ Host, mods *modules) (nftV4, nftV6, native *offrampv1.Section) {
	snapshot, attempts, err := snapshotNFT(ctx, mods)
	switch {
	case errors.Is(err, errNoNFT):
		nftV4, nftV6, native = absent(kindNFTIPv4), absent(kindNFTIPv6), absent(kindNFT)
	case err != nil:
		nftV4, nftV6, native = failed(kindNFTIPv4, err), failed(kindNFTIPv6, err), failed(kindNFT, err)
	default:
		nftV4 = iptablesSection(kindNFTIPv4, snapshot.ipv4)
		nftV6 = iptablesSection(kindNFTIPv6, snapshot.ipv6)
		native = snapshot.nativeSection()
	}
	for _, section := range []*offrampv1.Section{nftV4, nftV6, native} {
		section.Volatile.Attempts = attempts
	}
	return nftV4, nftV6, native
}

func snapshotNFT(ctx context.Context, mods *modules) (*nftSnapshot, uint32, error) {
	loaded, err := mods.loaded(featureNFTables)
	if err != nil {
		return nil, 0, err
	}
	if !loaded {
		return nil, 0, errNoNFT
	}
	s, err := openNFT()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, 0, errNoNFT
	}
	if err != nil {
		return nil, 0, err
	}
	reader := &nftReader{socket: s, seed: maphash.MakeSeed()}
	snapshot, attempts, err := repeat(ctx, reader.snapshot)
	return snapshot, attempts, errors.Join(err, s.close())
}

// snapshot reads the ruleset, and fails with errTorn unless it was the same all the time.
//
// Neither the generation nor the kernel's own flag for interrupted dumps is enough: a transaction that is still being
// prepared, or that failed, moves neither, and yet shifts where a dump goes on after each part (nf_tables_dump_rules).
// So tables, chains and sets are read again at the end, and rules have to add up or be read again too.
func (r *nftReader) snapshot(ctx context.Context) (*nftSnapshot, error) {
	before, err := r.generation(ctx)
	if errors.Is(err, unix.EINVAL) {
		return nil, errNoNFT // nfnetlink knows nobody who answers for nf_tables
	}
	if err != nil {
		return nil, err
	}
	snapshot := newNFTSnapshot(r.seed)
	first, err := r.heads(ctx, snapshot.addHead)
	if err != nil {
		return nil, err
	}
	if err := r.rules(ctx, snapshot.addRule); err != nil {
		return nil, err
	}
	if err := r.confirmRules(ctx, snapshot); err != nil {
		return nil, err
	}
	second, err := r.heads(ctx, func(nftKind, *nftObject) error { return nil })
	if err != nil {
		return nil, err
	}
	snapshot.generation, err = r.generation(ctx)
	if err == nil && (snapshot.generation != before || first != second) {
		err = errTorn
	}
	return snapshot, err
}

// confirmRules reads the rules again of every table whose chains do not prove that all of them were seen.
func (r *nftReader) confirmRules(ctx context.Context, snapshot *nftSnapshot) error {
	for key, table := range snapshot.tables {
		if table.addsUp() {
			continue
		}
		var again maphash.Hash
		again.SetSeed(r.seed)
		err := r.rulesOf(ctx, key, func(_ nftKind, object *nftObject) error {
			object.fingerprint(&again)
			return nil
		})
		if err != nil {
			return err
		}
		if again.Sum64() != table.seen.Sum64() {
			return errTorn
		}
	}
	return nil
}

// iptablesSection reports the tables of one backend and family.
func iptablesSection(kind offrampv1.SectionKind, rules *ruleset) *offrampv1.Section {
	return read(kind, len(rules.tables) == 0, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Iptables{Iptables: rules.facts()},
	})
}
