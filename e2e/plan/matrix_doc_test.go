package plan_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/captures"
)

var update = flag.Bool("update", false, "write the rows of docs/cleanup-matrix.md that are seen; look at the difference before committing it")

// row is what became of one capture, by target.
type row [4]string

// matrix has the rows by capture.
type matrix map[string]row

const matrixHead = `# What a clean-up does, by state and target

Written by a test that applies each clean-up on real kernels in virtual machines and then looks with the native tools
(ipvsadm -Sn, ip address and route, ipset save, iptables-save of both backends and families, nft list ruleset, nfacct list):
` + "`go test ./e2e/plan -run TestCleanupMatrix -update`" + ` writes the rows that it sees, and without -update fails where this file says
something else. By default it tries some of the states on 6.1; with OFFRAMP_FULL=1 all of them on 5.10, 6.1 and 6.12.

- The states are captures of nodes with real kube-proxies (e2e/captures); beside each stands other people's state.
- nftables, iptables, ipvs: the captured kube-proxy runs, as a stand-in that answers as the real one did (e2e/standin), which
  changes nothing. After ` + "`kube-proxy --cleanup`" + ` none runs.
- none: no kube-proxy runs, as a person asserts (` + "`--assert-no-kube-proxy`" + `).
- **cleaned**: what the target does not use of kube-proxy's is gone, everything else is the same, line by line and in its order,
  and a second run has nothing to do. A restore with no kube-proxy running then made the node as it was before.
- **nothing to do**, **refused**: everything is the same. What the guards say is in [guards.md](guards.md).

| state | kube-proxy | nftables | iptables | ipvs | none |
|---|---|---|---|---|---|
`

func (m matrix) lines() []string {
	var lines []string
	for _, capture := range append(captures.Names(), captures.Recorded()...) {
		if cells, seen := m[capture]; seen {
			running := strings.TrimSpace(captureFile(capture, "proxyMode.txt"))
			if running == "" {
				running = "none"
			}
			lines = append(lines, "| "+capture+" | "+running+" | "+strings.Join(cells[:], " | ")+" |\n")
		}
	}
	return lines
}

// documented holds that docs/cleanup-matrix.md says what was seen, and after a full run nothing else.
func documented(t *testing.T, seen matrix) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "cleanup-matrix.md")
	content, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	said := parseMatrix(string(content))
	if *update {
		maps.Copy(said, seen)
		content = []byte(matrixHead + strings.Join(said.lines(), ""))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if string(content) != matrixHead+strings.Join(said.lines(), "") {
		t.Error("docs/cleanup-matrix.md has something that is not the test's")
	}
	for capture, row := range seen {
		if said[capture] != row {
			t.Errorf("%s: docs/cleanup-matrix.md says %q, seen %q", capture, said[capture], row)
		}
	}
	if os.Getenv("OFFRAMP_FULL") == "1" && len(said) != len(seen) {
		t.Errorf("docs/cleanup-matrix.md has %d rows, seen %d", len(said), len(seen))
	}
}

// parseMatrix reads the rows of a file.
func parseMatrix(text string) matrix {
	rows := matrix{}
	for line := range strings.Lines(strings.TrimPrefix(text, matrixHead)) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 6 {
			rows[cells[0]] = row(cells[2:])
		}
	}
	return rows
}
