package collect

import (
	"strconv"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// describe fills text, target and accounting objects of a rule of iptables-nft.
func (e *exact) describe(rule *inventory.Rule, chain string, object *nftObject) error {
	text := ruleText{chain: chain}
	jump, stateSeen := "-j", false
	err := eachAttribute(object.expressions, func(_ uint16, element []byte) error {
		name, data, err := splitExpression(element)
		if err != nil {
			return err
		}
		switch string(name) {
		case "counter":
		case "match":
			match, err := exactExtension(data)
			text.xtMatch(match.name, match.revision, match.info, e.matchedSet(&match))
			return err
		case "target":
			target, err := exactExtension(data)
			text.extension(printable(target.name))
			return err
		case "immediate":
			code, err := verdictOf(data)
			if name := verdictName(code); name != "" {
				text.target = name
			}
			if code == unix.NFT_GOTO {
				jump = "-g"
			}
			return err
		case "reject":
			text.extension("REJECT")
		case "masq":
			text.extension("MASQUERADE")
		case "ct", "bitwise", "cmp":
			// Three of them say "ct state new", which iptables-nft 1.8.10 and later may write so.
			if rule.CtStateNew && !rule.OtherMatches {
				if !stateSeen {
					text.matches = append(text.matches, "-m conntrack --ctstate NEW")
				}
				stateSeen = true
				return nil
			}
			text.expression()
		default:
			text.expression()
		}
		return nil
	})
	if rule.Comment != "" && len(object.userdata) > 0 && string(nftComment(object.userdata)) == rule.Comment {
		text.matches = append(text.matches, "-m comment --comment "+strconv.Quote(printable([]byte(rule.Comment))))
	}
	text.finish(rule, jump)
	return err
}

func (e *exact) matchedSet(match *exactXT) []string {
	if string(match.name) != "set" {
		return nil
	}
	if index, ok := setOfMatch(match.revision, match.info); ok {
		return e.nameSets([]uint16{index})
	}
	return nil
}

// exactXT is a match or target of x_tables within nf_tables: the numbers of their attributes are the same.
type exactXT struct {
	name, info []byte
	revision   uint32
}

func exactExtension(data []byte) (exactXT, error) {
	var extension exactXT
	err := eachAttribute(data, func(kind uint16, value []byte) error {
		switch kind {
		case unix.NFTA_MATCH_NAME:
			extension.name = cutNUL(value)
		case unix.NFTA_MATCH_REV:
			return bigEndian32(value, &extension.revision)
		case unix.NFTA_MATCH_INFO:
			extension.info = value
		}
		return nil
	})
	return extension, err
}

// noVerdict is none of nf_tables' codes.
const noVerdict = 1 << 30

// verdictOf returns the code of an immediate verdict.
func verdictOf(data []byte) (int32, error) {
	code := int32(noVerdict)
	err := eachAttribute(data, func(kind uint16, value []byte) error {
		if kind != unix.NFTA_IMMEDIATE_DATA {
			return nil
		}
		return eachAttribute(value, func(kind uint16, value []byte) error {
			if kind != unix.NFTA_DATA_VERDICT {
				return nil
			}
			number, err := numberOf(value, unix.NFTA_VERDICT_CODE)
			code = int32(number) //nolint:gosec // jumps are negative
			return err
		})
	})
	return code, err
}
