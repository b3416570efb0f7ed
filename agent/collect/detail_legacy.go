package collect

import (
	"context"
	"fmt"
	"slices"
)

// legacySource tells the chains of iptables-legacy of one family. It reads a table once, as of one moment.
type legacySource struct {
	host   Host
	layout legacyLayout
	names  lineNames
	tables map[string]map[string][]ruleLine
}

func (r *ruleReader) openLegacySource(ctx context.Context, layout legacyLayout) *legacySource {
	return &legacySource{r.host, layout, r.namesFor(ctx, layout.family), map[string]map[string][]ruleLine{}}
}

func (s *legacySource) close() error { return nil }

func (s *legacySource) chain(_ context.Context, table, chain string) ([]ruleLine, error) {
	if s.tables[table] == nil {
		chains, err := s.read(table)
		if err != nil {
			return nil, err
		}
		s.tables[table] = chains
	}
	lines, found := s.tables[table][chain]
	if !found {
		return nil, ErrNotThere
	}
	return lines, nil
}

// read asks for a table only when it is there, since asking creates it.
func (s *legacySource) read(table string) (map[string][]ruleLine, error) {
	names, err := legacyTables(s.host, &s.layout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrNotThere)
	}
	if !slices.Contains(names, table) {
		return nil, ErrNotThere
	}
	socket, err := openLegacy(&s.layout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = socket.close() }()
	info, blob, err := socket.table(table)
	if err != nil {
		return nil, err
	}
	return s.lines(info, blob)
}

// lines writes all chains of a table.
func (s *legacySource) lines(info *legacyInfo, blob []byte) (map[string][]ruleLine, error) {
	chains := legacyChains{byStart: builtInChains(info)}
	if err := chains.findUserChains(&s.layout, blob); err != nil {
		return nil, err
	}
	lines := map[string][]ruleLine{}
	for _, chain := range chains.byStart {
		lines[string(chain.name)] = nil
	}
	err := chains.eachRule(&s.layout, blob, func(chain legacyChain, entry *legacyEntry) error {
		line, err := legacyLine(&s.layout, s.names, entry)
		if err != nil {
			return err
		}
		if offset, ok := entry.jump(); ok {
			target, known := chains.byStart[offset]
			if !known {
				return errLegacyTable
			}
			option := "-j"
			if entry.isGoto {
				option = "-g"
			}
			line.jump(option, string(target.name))
		}
		name := string(chain.name)
		lines[name] = append(lines[name], line)
		return nil
	})
	return lines, err
}
