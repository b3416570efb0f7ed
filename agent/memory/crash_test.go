package memory

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const writerDir = "OFFRAMP_TEST_MEMORY_WRITER"

// TestWriter is the other process of TestKilledInTheMiddle: it writes again and again until it is killed.
func TestWriter(t *testing.T) {
	dir := os.Getenv(writerDir)
	if dir == "" {
		t.Skip("for TestKilledInTheMiddle")
	}
	f := &File{Node: "n", StateDir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	kept := someKept()
	for i := range 50 {
		kept.Entries = append(kept.Entries, &offrampv1.HistoryEntry{At: timestamppb.New(aMoment()), Kind: "mode", What: strings.Repeat("x", i*4)})
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if !f.Save(kept) {
			t.Fatal("it cannot write")
		}
	}
}

// Killed at any moment of a write, the file is there and whole: the earlier one or the new one.
func TestKilledInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	f, said := open(t, dir)
	if !f.Save(someKept()) {
		t.Fatal(said)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unfinished := 0
	for round := range 25 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		writer := exec.CommandContext(t.Context(), self, "-test.run=^TestWriter$")
		writer.Env = append(os.Environ(), writerDir+"="+dir)
		writer.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		waitForWrite(t, filepath.Join(dir, unfinishedName), time.Duration(round)*300*time.Microsecond)
		_ = writer.Process.Kill()
		_ = writer.Wait()
		if _, err := os.Stat(filepath.Join(dir, unfinishedName)); err == nil {
			unfinished++
		}
		if kept, ok := f.Load(); !ok || kept == nil || kept.ProxyVersion != "v1.37.2" {
			t.Fatalf("round %d: %v, %v: %s", round, kept, ok, said)
		}
	}
	t.Logf("killed %d times in the middle of a write", unfinished)
	if unfinished == 0 {
		t.Error("no kill met a write: the test shows nothing")
	}
}

// waitForWrite waits until a write has begun, and a moment longer.
func waitForWrite(t *testing.T, unfinished string, moment time.Duration) {
	t.Helper()
	_ = os.Remove(unfinished)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if _, err := os.Stat(unfinished); err == nil {
			time.Sleep(moment)
			return
		}
	}
	t.Fatal("no write began")
}

// A full disk keeps the earlier file whole and leaves nothing half-written that would take the last room.
func TestFullDisk(t *testing.T) {
	nstest.Enter(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k,nr_inodes=10"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	f, said := open(t, dir)
	if !f.Save(someKept()) {
		t.Fatal(said)
	}
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 64<<10), 0o600) // as far as it goes
	changed := someKept()
	changed.ProxyVersion = "v1.38.0"
	for range 3 {
		if f.Save(changed) {
			t.Fatal("it says to have written to a full disk")
		}
	}
	if strings.Count(said.String(), "no space left") != 1 {
		t.Errorf("it is not said once: %s", said)
	}
	if _, err := os.Stat(filepath.Join(dir, unfinishedName)); err == nil {
		t.Error("half a file stays")
	}
	if kept, ok := f.Load(); !ok || kept.ProxyVersion != "v1.37.2" {
		t.Errorf("the earlier file: %v, %v", kept, ok)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if !f.Save(changed) || !strings.Contains(said.String(), "can again keep") {
		t.Errorf("with room again: %s", said)
	}
}
