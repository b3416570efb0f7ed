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

// withNFT opens a reader of nf_tables, if asking loads nothing, and closes it afterwards.
func withNFT[T any](mods *modules, seed maphash.Seed, use func(*nftReader) (T, error)) (T, error) {
	var none T
	loaded, err := mods.loaded(featureNFTables)
	if err != nil {
		return none, err
	}
	if !loaded {
		return none, errNoNFT
	}
	s, err := openNFT()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return none, errNoNFT
	}
	if err != nil {
		return none, err
	}
	result, err := use(&nftReader{socket: s, seed: seed, masquerade: defaultMasquerade})
	return result, errors.Join(err, s.close())
}

// snapshot reads the ruleset, then lets read more, and fails with errTorn unless it was the same all the time.
func (r *nftReader) snapshot(ctx context.Context, more func(*nftSnapshot) error) (*nftSnapshot, error) {
	return r.frame(ctx, func(snapshot *nftSnapshot) error {
		if err := r.rules(ctx, snapshot.addRule); err != nil {
			return err
		}
		if err := r.addVerdictMaps(ctx, snapshot); err != nil {
			return err
		}
		if err := r.addServices(ctx, snapshot); err != nil {
			return err
		}
		if err := r.confirmRules(ctx, snapshot); err != nil {
			return err
		}
		return more(snapshot)
	})
}

// frame reads tables, chains and sets, lets read more, and fails with errTorn unless nothing changed meanwhile.
//
// Neither the generation nor the kernel's own flag for interrupted dumps is enough: a transaction that is still being
// prepared, or that failed, moves neither, and yet shifts where a dump goes on after each part (nf_tables_dump_rules).
// So tables, chains and sets are read again at the end, and rules have to add up or be read again too.
func (r *nftReader) frame(ctx context.Context, more func(*nftSnapshot) error) (*nftSnapshot, error) {
	before, err := r.generation(ctx)
	if errors.Is(err, unix.EINVAL) {
		return nil, errNoNFT // nfnetlink knows nobody who answers for nf_tables
	}
	if err != nil {
		return nil, err
	}
	snapshot := newNFTSnapshot(r.seed)
	snapshot.ipv4.masquerade, snapshot.ipv6.masquerade, snapshot.native.masquerade = r.masquerade, r.masquerade, r.masquerade
	first, err := r.heads(ctx, snapshot.addHead)
	if err != nil {
		return nil, err
	}
	if err := more(snapshot); err != nil {
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
