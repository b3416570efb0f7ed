package audit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/audit"
)

func entry(node string) *audit.Entry {
	return &audit.Entry{
		Time: time.Unix(1800000000, 0).UTC(), Node: node, Method: audit.MethodApply, Outcome: audit.OutcomeDone, Caller: "uid=0",
		Operations: map[string]int{"done": 3}, Overrides: map[string]string{"boot-file": "goes\nwith the next image"},
	}
}

func TestLog(t *testing.T) {
	log := &audit.Log{StateDir: filepath.Join(t.TempDir(), "made")}
	if got, err := log.Entries(); len(got) > 0 || err != nil {
		t.Errorf("%v (%v) before anything was written", got, err)
	}
	for _, node := range []string{"one", "two"} {
		line, err := log.Write(entry(node))
		if err != nil || strings.Contains(string(line), "\n") || !json.Valid(line) {
			t.Fatalf("%v: %s", err, line)
		}
	}
	got, err := log.Entries()
	if diff := cmp.Diff([]*audit.Entry{entry("one"), entry("two")}, got, cmp.Comparer(func(a, b map[string]string) bool {
		return fmt.Sprint(a) == fmt.Sprint(b)
	})); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	if info, err := os.Stat(filepath.Join(log.StateDir, "audit.log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v: others may read it", info, err)
	}
}

// A power cut may leave half a line; what comes after it must be read all the same.
func TestHalfALine(t *testing.T) {
	log := &audit.Log{StateDir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(log.StateDir, "audit.log"), []byte(`{"time":"2026-`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := log.Write(entry("x")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := log.Entries(); len(got) != 2 || err != nil {
		t.Errorf("%d entries (%v)", len(got), err)
	}
}

func TestRotation(t *testing.T) {
	log := &audit.Log{StateDir: t.TempDir(), MaxSize: 700}
	for i := range 40 {
		if _, err := log.Write(entry(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(log.StateDir, "*"))
	if err != nil || len(files) != 5 {
		t.Errorf("%v (%v)", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 700 {
			t.Errorf("%s: %v (%v)", file, info.Size(), err)
		}
	}
	got, err := log.Entries()
	if err != nil || len(got) < 8 || got[len(got)-1].Node != "39" || got[0].Node != fmt.Sprint(40-len(got)) {
		t.Errorf("%d entries (%v)", len(got), err)
	}
}

// Ten processes and goroutines may refuse at once: no line is lost or torn.
func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			log := &audit.Log{StateDir: dir, MaxSize: 8000}
			for range 10 {
				if _, err := log.Write(entry("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got, err := (&audit.Log{StateDir: dir}).Entries(); len(got) != 100 || err != nil {
		t.Errorf("%d entries (%v)", len(got), err)
	}
}

func TestLogThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if line, err := (&audit.Log{StateDir: filepath.Join(file, "x")}).Write(entry("x")); err == nil || len(line) == 0 {
		t.Errorf("%s (%v)", line, err)
	}
}
