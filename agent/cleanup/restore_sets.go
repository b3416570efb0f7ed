package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

var errNoSet = errors.New("a set that it matches is not there")

// renumber puts the numbers of now into the set matches of a rule: the kernel knows sets by a number that each gets when it
// is made. The n-th match of a set is of the n-th set that the rule names.
func (r *restoration) renumber(rule *inventory.Rule, expressions []byte) ([]byte, error) {
	if len(rule.Sets) == 0 {
		return expressions, nil
	}
	parsed, err := nl.ParseRouteAttr(expressions)
	if err != nil {
		return nil, fmt.Errorf("its bytes are not understood: %w", err)
	}
	var all []byte
	next := 0
	for _, expression := range parsed {
		value := slices.Clone(expression.Value)
		if index := setIndex(value); index != nil {
			if next >= len(rule.Sets) {
				return nil, errNoSet
			}
			number, found := r.setNumber(rule.Sets[next])
			if !found {
				return nil, fmt.Errorf("%s: %w", rule.Sets[next], errNoSet)
			}
			next++
			binary.NativeEndian.PutUint16(index, number)
		}
		all = append(all, rawAttribute(expression.Attr.Type, value)...)
	}
	if next != len(rule.Sets) {
		return nil, errNoSet
	}
	return all, nil
}

func (r *restoration) setNumber(name string) (uint16, bool) {
	at := slices.IndexFunc(r.node.Sets, func(set inventory.Set) bool { return set.Name == name })
	if at < 0 {
		return 0, false
	}
	return r.node.Sets[at].Index, true
}

// setIndex is where, in the bytes of an expression, the number of the set stands that it matches; nil for any other
// expression. All revisions of the match begin with it (struct xt_set_info in linux/netfilter/xt_set.h).
func setIndex(expression []byte) []byte {
	outer := flatAttributes(expression)
	if nl.BytesToString(outer[unix.NFTA_EXPR_NAME]) != "match" {
		return nil
	}
	inner := flatAttributes(outer[unix.NFTA_EXPR_DATA])
	if info := inner[unix.NFTA_MATCH_INFO]; nl.BytesToString(inner[unix.NFTA_MATCH_NAME]) == "set" && len(info) >= 2 {
		return info[:2]
	}
	return nil
}
