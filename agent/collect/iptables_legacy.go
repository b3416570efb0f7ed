package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// errNoLegacy says that the kernel has no iptables-legacy of a family.
var errNoLegacy = errors.New("the kernel has no iptables-legacy")

// readLegacy reports the tables of iptables-legacy of one family. It asks only for tables that are there, since asking
// for another creates it.
func (r *ruleReader) readLegacy(ctx context.Context, family kubeproxy.Family) *offrampv1.Section {
	layout := legacyIPv4()
	if family == kubeproxy.IPv6 {
		layout = legacyIPv6()
	}
	var holders setHolders
	rules, attempts, err := repeat(ctx, func(ctx context.Context) (*ruleset, error) {
		rules, err := r.countLegacy(ctx, &layout)
		if err == nil {
			holders, err = r.nameLegacySets(ctx, layout.kind, rules)
		}
		return rules, err
	})
	var section *offrampv1.Section
	switch {
	case errors.Is(err, errNoLegacy):
		section = absent(layout.kind)
	case err != nil:
		section, holders = failed(layout.kind, err), nil
	default:
		section = iptablesSection(layout.kind, rules)
	}
	r.remember(layout.kind, holders)
	section.Volatile.Attempts = attempts
	return section
}

// nameLegacySets names the sets that rules hold. The tables are read before it, not in the same moment: a set that was given
// up in between, and its index to another, is beyond telling.
func (r *ruleReader) nameLegacySets(ctx context.Context, kind offrampv1.SectionKind, rules *ruleset) (setHolders, error) {
	var names setNames
	if len(rules.uses) > 0 {
		var err error
		if names, err = readSetNames(ctx, r.mods); err != nil {
			return nil, err
		}
	}
	return rules.nameSets(kind, names)
}

// countLegacy counts all tables of a family. Each is as of one moment; that they are the same tables afterwards is
// looked at.
func (r *ruleReader) countLegacy(ctx context.Context, layout *legacyLayout) (*ruleset, error) {
	names, err := legacyTables(r.host, layout)
	if err != nil {
		return nil, err
	}
	rules := newRuleset(layout.family)
	rules.masquerade = r.masqueradeBits()
	if len(names) == 0 {
		return rules, nil
	}
	s, err := openLegacy(layout)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = s.count(layout, name, rules)
		}
	}
	if err := errors.Join(err, s.close()); err != nil {
		return nil, err
	}
	after, err := legacyTables(r.host, layout)
	if err == nil && !slices.Equal(names, after) {
		err = errTorn
	}
	return rules, err
}

func (s *legacySocket) count(layout *legacyLayout, name string, rules *ruleset) error {
	info, blob, err := s.table(name)
	if err != nil {
		return err
	}
	if err := countLegacyTable(layout, name, info, blob, rules); err != nil {
		return fmt.Errorf("table %s: %w", printable([]byte(name)), err)
	}
	return nil
}

// legacyTables lists the tables that are there in this network namespace, sorted.
func legacyTables(host Host, layout *legacyLayout) ([]string, error) {
	list, err := os.ReadFile(filepath.Join(host.Proc, "net", layout.names))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoLegacy
	}
	if err != nil {
		return nil, fmt.Errorf("list the tables of iptables-legacy: %w", err)
	}
	names := strings.Fields(string(list))
	slices.Sort(names)
	return names, nil
}
