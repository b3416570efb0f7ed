package collect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// chainWalk follows chains from where a Service enters them.
type chainWalk struct {
	source chainSource
	table  kubeproxy.Table // family only for native tables
	out    *detailItems
	seen   map[string]bool
}

func (w *chainWalk) title() string {
	return strings.TrimSpace(w.table.Family + " " + w.table.Name)
}

// element writes an element of a map and the chains that it leads to.
func (w *chainWalk) element(ctx context.Context, name, key string, code int32, chain string) error {
	action := nftVerdictWord(code)
	switch code {
	case unix.NFT_JUMP:
		action = "jump " + printable([]byte(chain))
	case unix.NFT_GOTO:
		action = "goto " + printable([]byte(chain))
	}
	if err := w.out.add(fmt.Sprintf("%s: map %s: %s : %s", w.title(), name, key, action)); err != nil {
		return err
	}
	if chain == "" {
		return nil
	}
	return w.follow(ctx, chain)
}

// follow writes a chain's rules, and those of the chains it leads to, each once.
func (w *chainWalk) follow(ctx context.Context, chain string) error {
	if w.seen[chain] {
		return nil
	}
	w.seen[chain] = true
	lines, _, err := repeat(ctx, func(ctx context.Context) ([]ruleLine, error) {
		return w.source.chain(ctx, w.table.Name, chain)
	})
	if err != nil {
		return err
	}
	for i := range lines {
		if err := w.line(ctx, chain, &lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// line writes a rule and follows it.
func (w *chainWalk) line(ctx context.Context, chain string, line *ruleLine) error {
	if err := w.out.add(w.title() + ": " + line.text(chain)); err != nil {
		return err
	}
	targets := line.targets
	for _, set := range line.sets {
		more, err := w.anonymous(ctx, set)
		if err != nil {
			return err
		}
		targets = append(targets, more...)
	}
	for _, target := range targets {
		if err := w.follow(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

// anonymous writes what stands in a set that is part of a rule, and returns the chains that it leads to.
func (w *chainWalk) anonymous(ctx context.Context, set string) ([]string, error) {
	source, isNFT := w.source.(*nftSource)
	if !isNFT || !strings.HasPrefix(set, "__") { // nft names those so (__map%d, __set%d), and no other may begin so
		return nil, nil
	}
	var targets []string
	err := source.reader.elements(ctx, nftTableKey{source.family, w.table.Name}, set, func(element *nftElement) error {
		chain := string(element.data.chain)
		if chain != "" {
			targets = append(targets, chain)
		}
		data := "0x" + raw(element.data.value)
		if element.data.verdict != nil {
			data = strings.TrimSpace(nftVerdictWord(element.data.code) + " " + printable([]byte(chain)))
		}
		return w.out.add(fmt.Sprintf("%s: %s: 0x%s : %s", w.title(), set, raw(element.key), data))
	})
	return targets, err
}

// serviceEntrances are the chains of iptables mode in which a rule for each Service stands, by table
// (pkg/proxy/iptables/proxier.go).
func serviceEntrances() []chainEntrance {
	return []chainEntrance{
		{"nat", "KUBE-SERVICES", false}, {"filter", "KUBE-SERVICES", false}, {"filter", "KUBE-EXTERNAL-SERVICES", false},
		{"filter", "KUBE-PROXY-FIREWALL", false}, {"nat", "KUBE-NODEPORTS", true}, {"filter", "KUBE-EXTERNAL-SERVICES", true},
	}
}

type chainEntrance struct {
	table, chain string
	nodePort     bool
}

func (s *nftSource) serviceRules(ctx context.Context, query *serviceQuery, out *detailItems) error {
	return serviceRules(ctx, s, nftFamily(s.family), s.family == unix.NFPROTO_IPV6, query, out)
}

func (s *legacySource) serviceRules(ctx context.Context, query *serviceQuery, out *detailItems) error {
	name := map[kubeproxy.Family]string{kubeproxy.IPv4: "legacy ip", kubeproxy.IPv6: "legacy ip6"}[s.layout.family]
	return serviceRules(ctx, s, name, s.layout.family == kubeproxy.IPv6, query, out)
}

// serviceRules writes the rules of iptables mode for a Service, and the chains that they lead to.
func serviceRules(ctx context.Context, source chainSource, family string, ipv6 bool, query *serviceQuery, out *detailItems) error {
	walks := map[string]*chainWalk{}
	for _, entrance := range serviceEntrances() {
		lines, _, err := repeat(ctx, func(ctx context.Context) ([]ruleLine, error) {
			return source.chain(ctx, entrance.table, entrance.chain)
		})
		if errors.Is(err, ErrNotThere) {
			continue
		}
		if err != nil {
			return err
		}
		walk := walks[entrance.table]
		if walk == nil {
			walk = &chainWalk{source: source, table: kubeproxy.Table{Family: family, Name: entrance.table}, out: out, seen: map[string]bool{}}
			walks[entrance.table] = walk
		}
		for i := range lines {
			if !query.matches(&lines[i], ipv6, entrance.nodePort) {
				continue
			}
			if err := walk.line(ctx, entrance.chain, &lines[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// matches reports whether a rule is for the Service: it names protocol and port, and, unless it is for a node port, one of
// the addresses.
func (q *serviceQuery) matches(line *ruleLine, ipv6, nodePort bool) bool {
	if !line.says("-p", protocolOption(q.protocol)) {
		return false
	}
	if nodePort {
		return q.nodePort != 0 && line.says("--dport", strconv.Itoa(int(q.nodePort)))
	}
	for _, address := range q.addresses {
		if address.Is6() == ipv6 && line.says("--dport", strconv.Itoa(int(q.port))) &&
			line.says("-d", fmt.Sprintf("%s/%d", address, address.BitLen())) {
			return true
		}
	}
	return false
}
