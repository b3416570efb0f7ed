package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
)

// readNFT reads the ruleset of nf_tables object by object.
func (e *exact) readNFT(ctx context.Context) error {
	loaded, err := e.scan.scanner.modules.loaded(featureNFTables)
	if err != nil || !loaded {
		return err
	}
	s, err := openNFT()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	reader := &exactNFT{nftReader: nftReader{socket: s, seed: maphash.MakeSeed()}, exact: e}
	found, _, err := repeat(ctx, reader.read)
	if err := errors.Join(err, s.close()); err != nil || found == nil {
		return err
	}
	e.node.Generation, e.node.Tables = found.generation, found.natives()
	e.node.Rulesets = append(e.node.Rulesets, found.rulesets[:]...)
	return nil
}

// exactNFT reads everything twice: neither the generation nor the kernel's flag for interrupted dumps tells of a transaction
// that is being prepared or that failed, and yet it shifts where a dump goes on (see nftReader).
type exactNFT struct {
	nftReader
	exact *exact
}

func (r *exactNFT) read(ctx context.Context) (*exactRuleset, error) {
	before, err := r.generation(ctx)
	if errors.Is(err, unix.EINVAL) {
		return nil, nil // nfnetlink knows nobody who answers for nf_tables
	}
	if err != nil {
		return nil, err
	}
	found := newExactRuleset(r.exact)
	first, err := r.walk(ctx, found.add)
	if err != nil {
		return nil, err
	}
	second, err := r.walk(ctx, func(nftKind, *nftObject, []byte) error { return nil })
	if err != nil {
		return nil, err
	}
	found.generation, err = r.generation(ctx)
	if err == nil && (found.generation != before || first != second) {
		err = errTorn
	}
	return found, err
}

// walk hands every table, chain, set and rule to visit, with the attributes of its message. It returns a fingerprint.
func (r *exactNFT) walk(ctx context.Context, visit func(nftKind, *nftObject, []byte) error) (uint64, error) {
	var seen maphash.Hash
	seen.SetSeed(r.seed)
	for _, kind := range []nftKind{nftTables(), nftChains(), nftSets(), nftRules()} {
		err := r.socket.ask(ctx, nftRequest(kind.request, unix.NLM_F_DUMP), func(message []byte) error {
			object, err := parseNFT(kind, message)
			if err != nil {
				return err
			}
			object.fingerprint(&seen)
			return visit(kind, &object, message[nfgenmsgSize:])
		})
		if err != nil {
			return 0, fmt.Errorf("list the %s of nf_tables: %w", kind.what, err)
		}
	}
	return seen.Sum64(), nil
}

// exactRuleset puts objects together as they come: tables, chains, sets, then rules.
type exactRuleset struct {
	exact      *exact
	generation uint32
	rulesets   [2]inventory.Ruleset
	// Places of tables and chains in rulesets; iptables tells which tables are in there.
	iptables map[nftTableKey]*exactTable
	native   []*inventory.Table
	byKey    map[nftTableKey]*inventory.Table
}

// exactTable is where a table of iptables-nft stands, and its chains by name.
type exactTable struct {
	rules  *inventory.Ruleset
	place  int
	chains map[string]int
}

func newExactRuleset(e *exact) *exactRuleset {
	return &exactRuleset{
		exact: e, iptables: map[nftTableKey]*exactTable{}, byKey: map[nftTableKey]*inventory.Table{},
		rulesets: [2]inventory.Ruleset{
			{Section: kindNFTIPv4, Family: kubeproxy.IPv4}, {Section: kindNFTIPv6, Family: kubeproxy.IPv6},
		},
	}
}

func (x *exactRuleset) natives() []inventory.Table {
	tables := make([]inventory.Table, 0, len(x.native))
	for _, table := range x.native {
		slices.Sort(table.SetMatches)
		tables = append(tables, *table)
	}
	return tables
}

func (x *exactRuleset) add(kind nftKind, object *nftObject, raw []byte) error {
	key := nftTableKey{object.family, string(object.table)}
	if kind.request == unix.NFT_MSG_GETTABLE {
		return x.addTable(key, object, raw)
	}
	table, native := x.iptables[key], x.byKey[key]
	if table == nil && native == nil {
		return errTorn
	}
	switch kind.request {
	case unix.NFT_MSG_GETCHAIN:
		if native != nil {
			native.Chains++
			return nil
		}
		return table.addChain(object, raw)
	case unix.NFT_MSG_GETSET:
		if native != nil && !object.anonymous {
			native.Sets++
		}
		return nil
	default:
		if native != nil {
			return x.addNativeRule(native, object)
		}
		return x.addRule(table, object, raw)
	}
}

func (x *exactRuleset) addTable(key nftTableKey, object *nftObject, raw []byte) error {
	place := slices.Index([]uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}, key.family)
	if place >= 0 && isIPTablesName(key.name) {
		rules := &x.rulesets[place]
		rules.Tables = append(rules.Tables, inventory.RuleTable{Name: key.name})
		x.iptables[key] = &exactTable{rules: rules, place: len(rules.Tables) - 1, chains: map[string]int{}}
		return nil
	}
	flags, err := numberOf(raw, unix.NFTA_TABLE_FLAGS)
	table := &inventory.Table{
		Table:  kubeproxy.Table{Family: nftFamily(key.family), Name: key.name},
		Handle: object.handle, OwnedByProcess: flags&nftTableOwner != 0,
	}
	x.byKey[key] = table
	x.native = append(x.native, table)
	return err
}

// nftTableOwner is NFT_TABLE_F_OWNER.
const nftTableOwner = 2

// numberOf finds a number among attributes; 0 where it is missing.
func numberOf(raw []byte, wanted uint16) (number uint32, err error) {
	err = eachAttribute(raw, func(kind uint16, value []byte) error {
		if kind == wanted {
			return bigEndian32(value, &number)
		}
		return nil
	})
	return number, err
}

func (t *exactTable) table() *inventory.RuleTable { return &t.rules.Tables[t.place] }

func (t *exactTable) addChain(object *nftObject, raw []byte) error {
	chain := inventory.Chain{Name: string(object.name), Base: object.hooked, Handle: object.handle}
	if object.hooked {
		policy, err := numberOf(raw, unix.NFTA_CHAIN_POLICY)
		if err != nil {
			return err
		}
		chain.DropPolicy = policy == 0 // NF_DROP
	}
	if _, twice := t.chains[chain.Name]; twice {
		return errTorn
	}
	table := t.table()
	t.chains[chain.Name] = len(table.Chains)
	table.Chains = append(table.Chains, chain)
	return nil
}

func (x *exactRuleset) addRule(t *exactTable, object *nftObject, raw []byte) error {
	place, found := t.chains[string(object.name)]
	if !found {
		return errTorn
	}
	chain := &t.table().Chains[place]
	parsed, err := parseNFTRule(object)
	if err != nil {
		return err
	}
	rule := inventory.Rule{
		Position: uint32(len(chain.Rules) + 1), Handle: object.handle, To: string(parsed.to), Comment: string(parsed.comment), //nolint:gosec // fewer than 2^32
		CtStateNew: parsed.ctStateNew, OtherMatches: parsed.otherMatches,
		Sets: x.exact.nameSets(parsed.sets), Raw: bytes.Clone(raw),
	}
	if err := x.exact.describe(&rule, chain.Name, object); err != nil {
		return err
	}
	chain.Rules = append(chain.Rules, rule)
	return nil
}

// addNativeRule counts a rule of a native table, and the ipsets that it looks into by a match of x_tables.
func (x *exactRuleset) addNativeRule(table *inventory.Table, object *nftObject) error {
	table.Rules++
	parsed, err := parseNFTRule(object)
	if err != nil {
		return nil //nolint:nilerr // an expression of a kind of its own: no match of x_tables
	}
	table.SetMatches = append(table.SetMatches, x.exact.nameSets(parsed.sets)...)
	return nil
}
