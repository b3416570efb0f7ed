package collect

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// chainDetail hands out the rules of a chain.
func (r *ruleReader) chainDetail(ctx context.Context, query *offrampv1.ChainQuery, out *detailItems) (err error) {
	table, tableErr := unprintable(query.GetTable())
	chain, chainErr := unprintable(query.GetChain())
	if err := errors.Join(tableErr, chainErr); err != nil {
		return err
	}
	source, err := r.openSource(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	lines, _, err := repeat(ctx, func(ctx context.Context) ([]ruleLine, error) {
		return source.chain(ctx, string(table), string(chain))
	})
	if err != nil {
		return fmt.Errorf("chain %s of table %s: %w", query.GetChain(), query.GetTable(), err)
	}
	for i := range lines {
		if err := out.add(lines[i].text(string(chain))); err != nil {
			return err
		}
	}
	return nil
}

// chainSource tells the rules of one chain. Not for concurrent use.
type chainSource interface {
	// chain returns the rules in their order. An error is ErrNotThere where there is no such chain, errTorn where it
	// changed meanwhile.
	chain(ctx context.Context, table, chain string) ([]ruleLine, error)
	close() error
}

// openSource opens what tells the rules of a section's chains.
func (r *ruleReader) openSource(ctx context.Context, query *offrampv1.ChainQuery) (chainSource, error) {
	switch query.GetSection() {
	case kindNFTIPv4:
		return r.openNFTSource(ctx, unix.NFPROTO_IPV4)
	case kindNFTIPv6:
		return r.openNFTSource(ctx, unix.NFPROTO_IPV6)
	case kindNFT:
		family, known := familyOfNFT(query.GetFamily())
		if !known {
			return nil, fmt.Errorf("family %q: %w", query.GetFamily(), ErrNotThere)
		}
		return r.openNFTSource(ctx, family)
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4:
		return r.openLegacySource(ctx, legacyIPv4()), nil
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6:
		return r.openLegacySource(ctx, legacyIPv6()), nil
	default:
		return nil, fmt.Errorf("%s has no chains", query.GetSection())
	}
}

func familyOfNFT(name string) (uint8, bool) {
	for _, family := range []uint8{
		unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_ARP, unix.NFPROTO_NETDEV, unix.NFPROTO_BRIDGE, unix.NFPROTO_IPV6,
	} {
		if nftFamily(family) == name {
			return family, true
		}
	}
	return 0, false
}

// namesFor reads the names of sets. Without them sets are shown by number.
func (r *ruleReader) namesFor(ctx context.Context, family kubeproxy.Family) lineNames {
	names, err := readSetNames(ctx, r.mods)
	if err != nil {
		names = nil
	}
	return lineNames{family: family, sets: names}
}

// nftSource tells the chains of one family of nf_tables.
type nftSource struct {
	reader *nftReader
	family uint8
	names  lineNames
}

func (r *ruleReader) openNFTSource(ctx context.Context, family uint8) (*nftSource, error) {
	loaded, err := r.mods.loaded(featureNFTables)
	if err == nil && !loaded {
		err = fmt.Errorf("%w: %w", errNoNFT, ErrNotThere)
	}
	if err != nil {
		return nil, err
	}
	s, err := openNFT()
	if err != nil {
		return nil, err
	}
	ip := map[uint8]kubeproxy.Family{unix.NFPROTO_IPV4: kubeproxy.IPv4, unix.NFPROTO_IPV6: kubeproxy.IPv6}[family]
	return &nftSource{&nftReader{socket: s, seed: r.seed}, family, r.namesFor(ctx, ip)}, nil
}

func (s *nftSource) close() error { return s.reader.socket.close() }

// chain reads a chain, and again for the number of its rules: one that is being changed is told by its generation.
func (s *nftSource) chain(ctx context.Context, table, chain string) ([]ruleLine, error) {
	before, err := s.reader.generation(ctx)
	if err != nil {
		return nil, err
	}
	key := nftTableKey{s.family, table}
	if err := s.exists(ctx, key, chain); err != nil {
		return nil, err
	}
	var lines []ruleLine
	last := uint64(0)
	err = s.reader.rulesOfChain(ctx, key, chain, func(_ nftKind, object *nftObject) error {
		line, err := lineOfNFT(s.names, object)
		if len(lines) <= maxDetailItems { // one more, so that it shows
			lines = append(lines, line)
		}
		if object.handle == last {
			return errTorn
		}
		last = object.handle
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := s.reader.generation(ctx)
	if err == nil && before != after {
		err = errTorn
	}
	return lines, err
}

// exists asks for the chain itself: a list of the rules of a chain that is not there is empty.
func (s *nftSource) exists(ctx context.Context, table nftTableKey, chain string) error {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: table.family, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(unix.NFTA_CHAIN_TABLE, nl.ZeroTerminated(table.name)))
	request.AddData(nl.NewRtAttr(unix.NFTA_CHAIN_NAME, nl.ZeroTerminated(chain)))
	err := s.reader.socket.ask(ctx, request, func([]byte) error { return nil })
	if errors.Is(err, unix.ENOENT) {
		return ErrNotThere
	}
	return err
}

// rulesOfChain hands the rules of one chain to visit.
func (r *nftReader) rulesOfChain(ctx context.Context, table nftTableKey, chain string, visit nftVisit) error {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: table.family, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(table.name)))
	request.AddData(nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(chain)))
	return r.each(ctx, nftRules(), request, visit)
}
