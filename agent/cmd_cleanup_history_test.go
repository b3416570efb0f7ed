package main

import (
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestHistoryOfANodeThatWasNeverCleaned(t *testing.T) {
	dir := t.TempDir()
	newStage().call(t.Context(), nil, "cleanup", "journal", "--state-dir", dir).want(t, 0, "No clean-up was begun", "")
	newStage().call(t.Context(), nil, "cleanup", "backups", "--state-dir", dir+"/none").want(t, 0, "There is no backup", "")
	newStage().call(t.Context(), nil, "cleanup", "journal", "--state-dir", dir, "-o", "json").want(t, 0, "[]\n", "")
	newStage().call(t.Context(), nil, "cleanup", "backups", "--state-dir", dir, "-o", "yaml").want(t, 0, "[]\n", "")
}

func TestJournalEntries(t *testing.T) {
	began := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	run := &cleanup.Run{
		ID: "20261130T180000Z-1a2b", What: "apply", BeganAt: began, BackupComplete: true, Notes: []string{"a\x1bnote"},
		Plan:     &offrampv1.Plan{Target: offrampv1.Target_TARGET_NFTABLES},
		Outcomes: []offrampv1.OperationOutcome{1, 1, 5, 0},
	}
	var out strings.Builder
	entry := entryOf(run)
	if err := entry.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"apply nftables: began 2026-11-30 18:00:00Z, interrupted\n", "operations: done 2, not-tried 1, unknown 1\n",
		"backup: 20261130T180000Z-1a2b\n", `a\x1bnote`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
	run.EndedAt, run.Error = began.Add(time.Second), "the disk is full"
	out.Reset()
	entry = entryOf(run)
	if err := entry.write(&out); err != nil || !strings.Contains(out.String(), "ended 2026-11-30 18:00:01Z") || !strings.Contains(out.String(), "error: the disk is full") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestBackupsAsText(t *testing.T) {
	var out strings.Builder
	manifest := &cleanup.Manifest{ID: "b1", MadeAt: time.Unix(1800000000, 0), Target: "TARGET_NONE",
		Files: map[string]cleanup.ManifestFile{"ipset-save.txt": {Bytes: 12, Restore: "ipset restore < ipset-save.txt"}, "objects.json": {Bytes: 3}}}
	if err := writeBackup(&out, manifest); err != nil {
		t.Fatal(err)
	}
	if want := "b1: made 2027-01-15 08:00:00Z, target none\n  ipset-save.txt, 12 bytes, by hand: ipset restore < ipset-save.txt\n  objects.json, 3 bytes\n"; out.String() != want {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	if err := writeBackup(&out, &cleanup.Manifest{ID: "b2"}); err != nil || !strings.Contains(out.String(), "cannot be read") {
		t.Errorf("%v: %s", err, out.String())
	}
}
