package cleanup_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/nstest"
)

// backupFile reads a file of the newest backup.
func (n *node) backupFile(name string) string {
	n.t.Helper()
	backups, err := cleanup.Backups(n.config.StateDir)
	if err != nil || len(backups) == 0 {
		n.t.Fatalf("%d backups, error %v", len(backups), err)
	}
	content, err := os.ReadFile(filepath.Join(n.config.StateDir, "backups", backups[len(backups)-1].ID, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(content)
}

// People can restore a backup by hand: the native tools take its files, and print the same as before.
func TestBackupIsRestoredByHand(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	zoo(t)
	kubeProxy(t, "ipvs-then-iptables")
	before := look(t)
	n := newNode(t)
	mustClean(t, n.apply())
	run(t, regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(n.backupFile("ipset.save"), ""), "ipset", "restore")
	for _, backend := range backends() {
		rules := n.backupFile(backend.tool + ".rules")
		if undecoded := strings.Count(rules, "# only"); undecoded > 0 {
			t.Logf("%s: %d rules are not decoded", backend.tool, undecoded)
		}
		run(t, rules, backend.tool+"-restore", "--noflush")
	}
	after := look(t)
	if strings.Contains(n.backupFile("iptables-nft.rules")+n.backupFile("ip6tables-nft.rules"), "# only") {
		t.Log("rules of the nft backend are not compared: some are not decoded")
		before, after = partOf(t, before, "## iptables-legacy"), partOf(t, after, "## iptables-legacy")
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("before the clean-up (-), restored by hand (+):\n%s", diff)
	}
}

// partOf is what follows a heading.
func partOf(t *testing.T, text, heading string) string {
	t.Helper()
	_, part, found := strings.Cut(text, heading)
	if !found {
		t.Fatalf("there is no %q", heading)
	}
	return part
}

// A backup that was changed, or is not whole, is not restored.
func TestTamperedBackupIsRefused(t *testing.T) {
	if _, inside := enterDirty(t); !inside {
		return
	}
	n := newNode(t)
	mustClean(t, n.apply())
	clean := look(t)
	path, err := filepath.Glob(filepath.Join(n.config.StateDir, "backups", "*", "objects.json"))
	if err != nil || len(path) != 1 {
		t.Fatal(path, err)
	}
	content, err := os.ReadFile(path[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, tamper := range map[string]func() error{
		"changed": func() error {
			return os.WriteFile(path[0], append([]byte(" "), content...), 0o600)
		},
		"missing": func() error { return os.Remove(path[0]) },
	} {
		if err := tamper(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.restore(noProxy, ""); !errors.Is(err, cleanup.ErrBackup) {
			t.Errorf("%s: %v, want %v", name, err, cleanup.ErrBackup)
		}
	}
	if diff := cmp.Diff(clean, look(t)); diff != "" {
		t.Errorf("it changed something:\n%s", diff)
	}
}

// Old backups and journals go when a new run begins, unfinished backups as well; what is not a run's stays.
func TestRetention(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	n := newNode(t)
	n.config.KeepRuns, n.config.KeepFor = 3, 48*time.Hour
	day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	n.config.Now = func() time.Time { day = day.Add(time.Second); return day }
	notOurs := filepath.Join(n.config.StateDir, "backups", "mine")
	for i := range 6 {
		run(t, "", "iptables-nft", "-t", "nat", "-N", "KUBE-NODE-PORT")
		if i == 4 {
			day = day.Add(30 * time.Hour)
		}
		mustClean(t, n.apply())
		if i == 0 {
			if err := os.MkdirAll(notOurs, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(n.config.StateDir, "backups", "20270101T000000Z-00000000.partial"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	backups, err := cleanup.Backups(n.config.StateDir)
	if err != nil || len(backups) != 4 { // three before the last began, and its own
		t.Errorf("%d backups, error %v, want 4", len(backups), err)
	}
	runs, err := cleanup.ReadJournal(n.config.StateDir)
	if err != nil || len(runs) != 4 {
		t.Errorf("%d journals, error %v, want 4", len(runs), err)
	}
	if _, err := os.Stat(notOurs); err != nil {
		t.Error(err)
	}
	if partial, _ := filepath.Glob(filepath.Join(n.config.StateDir, "backups", "*.partial")); len(partial) != 0 {
		t.Errorf("%v is left", partial)
	}
	day = day.Add(100 * time.Hour)
	run(t, "", "iptables-nft", "-t", "nat", "-N", "KUBE-NODE-PORT")
	mustClean(t, n.apply())
	if backups, err := cleanup.Backups(n.config.StateDir); err != nil || len(backups) != 2 {
		t.Errorf("%d backups after 100 hours, error %v, want the newest of before and the new one", len(backups), err)
	}
}
