package memory

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func aMoment() time.Time { return time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC) }

func someKept() *collect.Kept {
	at := timestamppb.New(aMoment())
	return &collect.Kept{
		Since: aMoment().Add(-time.Hour), Mode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES, ProxyVersion: "v1.37.2", BootID: "b",
		ExcludeCIDRs: []string{"10.9.0.0/16", "2001:db8::/32"},
		NoneSince:    aMoment(), NoneSeen: aMoment().Add(time.Minute),
		Changes: []*offrampv1.ModeChange{{At: at, From: offrampv1.ProxyMode_PROXY_MODE_IPVS, To: offrampv1.ProxyMode_PROXY_MODE_NFTABLES}},
		Entries: []*offrampv1.HistoryEntry{{At: at, Kind: "mode", What: "ipvs to nftables"}},
	}
}

func open(t *testing.T, dir string) (*File, *bytes.Buffer) {
	t.Helper()
	said := &bytes.Buffer{}
	f := &File{Node: "n", StateDir: dir, Log: slog.New(slog.NewTextHandler(said, nil))}
	t.Cleanup(func() { _ = f.Close() })
	return f, said
}

func wantKept(t *testing.T, got, want *collect.Kept) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeptOverARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "dir")
	f, said := open(t, dir)
	if kept, ok := f.Load(); kept != nil || !ok {
		t.Fatalf("at first: %v, %v", kept, ok)
	}
	if !f.Save(someKept()) {
		t.Fatal(said)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, _ = open(t, dir)
	kept, ok := f.Load()
	if !ok {
		t.Fatal("not there after a restart")
	}
	wantKept(t, kept, someKept())
	for name, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, fileName): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestGarbledIsMovedAside(t *testing.T) {
	good, err := encode("n", someKept())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":                   "",
		"cut off":                 string(good[:len(good)/2]),
		"of another node":         strings.Replace(string(good), `"node":"n"`, `"node":"m"`, 1),
		"of a later form":         strings.Replace(string(good), `"form":1`, `"form":2`, 1),
		"no CIDR":                 strings.Replace(string(good), `"10.9.0.0/16"`, `"10.9.0.0/99"`, 1),
		"no since":                `{"form":1,"node":"n","history":{}}`,
		"a change without a time": `{"form":1,"node":"n","history":{"since":"2026-11-30T17:00:00Z","modeChanges":[{}]}}`,
		"huge":                    `{"form":1,"node":"n","history":{"since":"2026-11-30T17:00:00Z"}}` + strings.Repeat(" ", maxBytes),
		"zeros":                   strings.Repeat("\x00", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, said := open(t, dir)
			if kept, ok := f.Load(); kept != nil || !ok {
				t.Fatalf("%v, %v", kept, ok)
			}
			if aside, err := os.ReadFile(filepath.Join(dir, garbledName)); err != nil || string(aside) != text {
				t.Errorf("aside are %d bytes: %v", len(aside), err)
			}
			if !strings.Contains(said.String(), "cannot be understood") || !strings.Contains(said.String(), garbledName) {
				t.Errorf("the log: %s", said)
			}
			if !f.Save(someKept()) {
				t.Error("it does not begin anew")
			}
		})
	}
}

// What cannot be read now may be good: it is not written over.
func TestUnreadableStays(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	f, said := open(t, dir)
	for range 3 {
		if kept, ok := f.Load(); kept != nil || ok {
			t.Fatalf("%v, %v", kept, ok)
		}
	}
	if strings.Count(said.String(), "level=WARN") != 1 {
		t.Errorf("it is not said once: %s", said)
	}
}

func TestTwoAgents(t *testing.T) {
	dir := t.TempDir()
	first, _ := open(t, dir)
	if _, ok := first.Load(); !ok || !first.Save(someKept()) {
		t.Fatal("the first cannot")
	}
	second, said := open(t, dir)
	if _, ok := second.Load(); ok || second.Save(&collect.Kept{}) || !strings.Contains(said.String(), "another agent") {
		t.Errorf("the second writes, too: %s", said)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	kept, ok := second.Load()
	if !ok {
		t.Fatal("not once the first has ended")
	}
	wantKept(t, kept, someKept())
}

func TestStorageThatForgets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f, said := open(t, dir)
	f.Storage = func(string) error { return cleanup.ErrNotDurable }
	if _, ok := f.Load(); ok || f.Save(someKept()) || !strings.Contains(said.String(), "not on durable storage") {
		t.Errorf("it trusts it: %s", said)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder was made: %v", err)
	}
	f.Storage = func(string) error { return cleanup.ErrNoRoom }
	if _, ok := f.Load(); !ok || !f.Save(someKept()) {
		t.Error("a small file needs no room for a backup")
	}
}

func FuzzDecode(f *testing.F) {
	good, err := encode("n", someKept())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"form":1,"node":"n","mode":99,"history":{"since":"2026-11-30T17:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		kept, err := decode("n", text)
		if err != nil {
			if !errors.Is(err, errGarbled) {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := encode("n", kept); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
