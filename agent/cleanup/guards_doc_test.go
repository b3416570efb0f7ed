package cleanup_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/cleanup"
)

var update = flag.Bool("update", false, "write docs/guards.md again; look at the difference before committing it")

const docHead = `# Guards of a clean-up

What can stand in the way of ` + "`offramp-agent cleanup`" + `, by the stable id that plans and results name it by. Guards are asked
when a plan is made, and again on the node at the moment of apply. A plan without operations has no guards but
` + "`section-unread` and `unattributed-server`" + `, by which "nothing to do" might not be true.

This file is written by a test of agent/cleanup from the list of guards (guard_list.go):
` + "`go test ./agent/cleanup -run TestGuardsDoc -update`" + `.

`

const overridableHead = `## Can be overridden on the node, by name, with a reason

` + "`--override GUARD=REASON`" + `; the reason goes into plan, journal and result.

`

const neverHead = `
## Never

`

// docs/guards.md is the list of guards.
func TestGuardsDoc(t *testing.T) {
	var overridable, never strings.Builder
	for _, guard := range cleanup.Guards() {
		into := &never
		if guard.Overridable {
			into = &overridable
		}
		into.WriteString("| `" + guard.ID + "` | " + guard.Title + " | " + guard.Remedy + " |\n")
	}
	const table = "| guard | what it says | what to do |\n|---|---|---|\n"
	want := docHead + overridableHead + table + overridable.String() + neverHead + table + never.String()
	path := filepath.Join("..", "..", "docs", "guards.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/guards.md is not the list of guards (-list +docs):\n%s", diff)
	}
}

// Ids are unique, in the form that people type, and each has words.
func TestGuardList(t *testing.T) {
	seen := map[string]bool{}
	for _, guard := range cleanup.Guards() {
		if seen[guard.ID] || strings.Trim(guard.ID, "abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Errorf("id %q", guard.ID)
		}
		seen[guard.ID] = true
		if guard.Title == "" || guard.Remedy == "" || !strings.HasSuffix(guard.Remedy, ".") || strings.HasSuffix(guard.Title, ".") {
			t.Errorf("words of %s: %q, %q", guard.ID, guard.Title, guard.Remedy)
		}
	}
}

func TestCheckOverride(t *testing.T) {
	for id, reason := range map[string]string{"nothing-of-this-name": "x", "mode-is-not-target": "x", "sockets-with-vip": ""} {
		if cleanup.CheckOverride(id, reason) == nil {
			t.Errorf("%s=%q passes", id, reason)
		}
	}
	if err := cleanup.CheckOverride("sockets-with-vip", "drained by hand"); err != nil {
		t.Error(err)
	}
}
