package nstest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NeedTool skips the test, or fails it under OFFRAMP_REQUIRE_KERNEL=1, when one of the named programs is not in PATH.
func NeedTool(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			unavailable(t, "needs the program %s, which is not in PATH", name)
		}
	}
}

// NeedKernel skips the test when this kernel lacks one of the named features. A feature has its module's name, with
// underscores: ip_vs, dummy, nf_tables, ip_set, ip_tables, ip6_tables, nft_compat, xt_ipvs, nfnetlink_acct, veth, ….
//
// A skip is allowed even under OFFRAMP_REQUIRE_KERNEL=1, since runs in the lab's guests cover it; there, under
// OFFRAMP_IN_GUEST=1, the module is loaded and its absence is a failure. On a host no module is ever loaded.
func NeedKernel(t *testing.T, features ...string) {
	t.Helper()
	for _, feature := range features {
		if inGuest() {
			load(t, feature)
		}
		switch {
		case hasFeature("/", feature):
		case inGuest():
			t.Fatalf("needs %s, which this guest's kernel does not have", feature)
		default:
			t.Skipf("needs %s, which this kernel does not have loaded: runs in the VM", feature)
		}
	}
}

// load asks for a module. Its answer is not looked at: what counts is whether the feature is there afterwards, and
// modprobe also fails for what is built in without its list of built-in modules.
func load(t *testing.T, feature string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "modprobe", feature).CombinedOutput(); err != nil {
		t.Logf("modprobe %s: %v: %s", feature, err, out)
	}
}

// symbol names, for features that may be built in and then have no folder under /sys/module, a function of theirs
// that /proc/kallsyms lists.
func symbol(feature string) string {
	return map[string]string{
		"bridge":         "br_handle_frame",
		"dummy":          "dummy_setup",
		"ip6_tables":     "ip6t_do_table",
		"ip_set":         "ip_set_add",
		"ip_tables":      "ipt_do_table",
		"ip_vs":          "ip_vs_conn_new",
		"nf_conntrack":   "nf_conntrack_in",
		"nf_tables":      "nft_do_chain",
		"nfnetlink_acct": "nfnl_acct_find_get",
		"nft_compat":     "nft_match_select_ops",
		"tun":            "tun_chr_open",
		"veth":           "veth_newlink",
		"xt_ipvs":        "ipvs_mt",
	}[feature]
}

// hasFeature says whether a feature is in the running kernel, loaded or built in. It only reads.
func hasFeature(root, feature string) bool {
	if _, err := os.Stat(filepath.Join(root, "sys/module", feature)); err == nil {
		return true
	}
	return hasLine(filepath.Join(root, "proc/modules"), feature, 0) ||
		symbol(feature) != "" && hasLine(filepath.Join(root, "proc/kallsyms"), symbol(feature), 2)
}

// hasLine says whether a line of the file has the word in the given column.
func hasLine(path, word string, column int) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > column && fields[column] == word {
			return true
		}
	}
	return false
}
