package memory

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Another process asks while the agent lives, with another name for the node, and leaves no trace.
func TestExcludeCIDRsForAnotherProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if cidrs, err := ExcludeCIDRs(dir); err != nil || cidrs != nil {
		t.Errorf("no folder: %q, %v", cidrs, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("asking makes the folder")
	}
	f, said := open(t, dir)
	if _, ok := f.Load(); !ok || !f.Save(someKept()) {
		t.Fatal(said)
	}
	before := namesIn(t, dir)
	cidrs, err := ExcludeCIDRs(dir)
	if diff := cmp.Diff([]string{"10.9.0.0/16", "2001:db8::/32"}, cidrs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(before, namesIn(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// What was excluded is not known where the memory cannot be understood: nobody may take it for nothing.
func TestExcludeCIDRsOfAGarbledMemory(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "of a later form": `{"form":2,"ipvs_exclude_cidrs":["10.9.0.0/16"]}`, "no CIDR": `{"form":1,"ipvs_exclude_cidrs":["x"]}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if cidrs, err := ExcludeCIDRs(dir); !errors.Is(err, errGarbled) || cidrs != nil {
			t.Errorf("%s: %q, %v", name, cidrs, err)
		}
		if left := namesIn(t, dir); len(left) != 1 {
			t.Errorf("%s: %q", name, left)
		}
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
