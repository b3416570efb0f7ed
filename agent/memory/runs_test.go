package memory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes the journal of one run, as agent/cleanup writes them.
func write(t *testing.T, dir, id string, lines ...string) {
	t.Helper()
	journal := filepath.Join(dir, "journal")
	if err := os.MkdirAll(journal, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(journal, id+".jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	plan  = `{"time":"2026-11-30T17:00:00Z","kind":"began","what":"apply","plan":{"operations":[{},{},{}]}}`
	ended = `{"time":"2026-11-30T17:01:00Z","kind":"ended"}`
)

func told(f *File) []string {
	var all []string
	for _, entry := range f.Runs() {
		all = append(all, fmt.Sprint(entry.GetAt().AsTime().Format("15:04 "), entry.GetKind(), ": ", entry.GetWhat(), " [", strings.ToLower(strings.TrimPrefix(entry.GetEnd().String(), "RUN_END_")), "]"))
	}
	return all
}

func TestRuns(t *testing.T) {
	dir := t.TempDir()
	f, said := open(t, dir)
	if got := told(f); got != nil {
		t.Errorf("without a journal: %v", got)
	}
	write(t, dir, "20261130T170000Z-00000001", plan, `{"kind":"outcome","count":3,"outcomes":["done","gone","remains"]}`, ended)
	write(t, dir, "20261130T170000Z-00000002", `{"time":"2026-11-30T17:02:00Z","kind":"began","what":"restore"}`, ended)
	write(t, dir, "20261130T170000Z-00000003", plan, `{"kind":"intent","first":1,"count":1}`,
		`{"time":"2026-11-30T17:09:00Z","kind":"ended","text":"interrupted: something"}`)
	write(t, dir, "20261130T170000Z-00000004", plan, `{"kind":"intent","count":3}`)
	write(t, dir, "20261130T170000Z-00000005", "garbage")
	want := []string{
		"17:01 clean-up: 2 operations done, 1 remain [partial]",
		"17:01 restore: done [complete]",
		"17:09 clean-up: 0 operations done, 2 remain, 1 unknown; interrupted: something [partial]",
		"17:00 clean-up: begun, and its end is not recorded [open]",
	}
	if diff := cmp.Diff(want, told(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// One that ended is not read again; one that had not is.
	write(t, dir, "20261130T170000Z-00000001", "overwritten")
	write(t, dir, "20261130T170000Z-00000004", plan, `{"kind":"outcome","count":3,"outcomes":["done"]}`, ended)
	want[3] = "17:01 clean-up: 3 operations done, 0 remain [complete]"
	if diff := cmp.Diff(want, told(f)); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
	if said.Len() != 0 {
		t.Errorf("the log: %s", said)
	}
}

func TestNewestRuns(t *testing.T) {
	dir := t.TempDir()
	for i := range 60 {
		write(t, dir, fmt.Sprintf("20261130T170000Z-%08x", i), plan, fmt.Sprintf(`{"kind":"ended","text":"%s"}`, strings.Repeat("é", 300)))
	}
	f, _ := open(t, dir)
	entries := f.Runs()
	if len(entries) != 50 || len(entries[0].GetWhat()) > 200 {
		t.Errorf("%d entries, the first of %d bytes", len(entries), len(entries[0].GetWhat()))
	}
}
