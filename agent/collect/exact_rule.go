package collect

import (
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// ruleText puts a rule together as iptables-save prints it. What is not decoded is "...".
type ruleText struct {
	chain   string
	matches []string
	unknown bool
	target  string
	// options: the target is none of the plain verdicts, and may have options, which are not decoded.
	options    bool
	accounting []string
}

// xtMatch takes a match of x_tables.
func (t *ruleText) xtMatch(name []byte, revision uint32, info []byte, sets []string) {
	switch string(name) {
	case "comment":
		t.matches = append(t.matches, "-m comment --comment "+strconv.Quote(printable(cutNUL(info))))
	case "conntrack":
		if isStateNew(revision, info) {
			t.matches = append(t.matches, "-m conntrack --ctstate NEW")
			return
		}
		t.other("-m conntrack")
	case "set":
		t.other("-m set --match-set " + strings.Join(sets, ","))
	case "nfacct":
		// struct xt_nfacct_match_info begins with the name (include/uapi/linux/netfilter/xt_nfacct.h).
		object := printable(cutNUL(info))
		t.accounting = append(t.accounting, object)
		t.matches = append(t.matches, "-m nfacct --nfacct-name "+object)
	default:
		t.other("-m " + printable(name))
	}
}

// extension takes a target that is no plain verdict.
func (t *ruleText) extension(name string) { t.target, t.options = name, true }

func (t *ruleText) other(match string) { t.matches = append(t.matches, match+" ...") }

// expression takes an expression of nf_tables that is no match of x_tables and no verdict.
func (t *ruleText) expression() {
	if !t.unknown {
		t.matches = append(t.matches, "...")
	}
	t.unknown = true
}

// finish fills a rule's text and target. to is the chain that it jumps to, jump "-j" or "-g".
func (t *ruleText) finish(rule *inventory.Rule, jump string) {
	parts := append([]string{"-A " + t.chain}, t.matches...)
	switch {
	case rule.To != "":
		parts = append(parts, jump+" "+rule.To)
	case t.target != "":
		parts = append(parts, "-j "+t.target)
		rule.Target = t.target
		if t.options {
			parts = append(parts, "...")
		}
	}
	rule.Text = strings.Join(parts, " ")
	rule.Accounting = t.accounting
}

// verdictName names a verdict of nf_tables, "" for jumps.
func verdictName(code int32) string {
	switch code {
	case 0:
		return "DROP"
	case 1:
		return "ACCEPT"
	case unix.NFT_RETURN:
		return "RETURN"
	default:
		return ""
	}
}

// legacyVerdict names a verdict of x_tables: NF_DROP is -1, NF_ACCEPT -2, XT_RETURN -5 (NF_REPEAT).
func legacyVerdict(data []byte) string {
	if len(data) < 4 {
		return ""
	}
	switch int32(binary.NativeEndian.Uint32(data)) { //nolint:gosec // a signed number
	case -1:
		return "DROP"
	case -2:
		return "ACCEPT"
	case -5:
		return "RETURN"
	default:
		return ""
	}
}
