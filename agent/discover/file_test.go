package discover

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func target(t *testing.T, text string) Target {
	t.Helper()
	parsed, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// remembering is a memory in which the name has these addresses.
func remembering(t *testing.T, addresses ...string) *File {
	t.Helper()
	dir := t.TempDir()
	Open(dir, nil, quiet()).keep(target(t, name), addresses)
	return Open(dir, []Target{target(t, name)}, quiet())
}

// What DNS said last is used by the next agent while DNS does not answer, and no longer than that.
func TestRememberedAddresses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	targets := []Target{target(t, name), target(t, "other:1")}
	synctest.Test(t, func(t *testing.T) {
		d := &dns{answer: []string{"10.0.0.5", "fd00::6"}}
		follow(t, name, d, Open(dir, targets, quiet())).is(0, "10.0.0.5:8443 [fd00::6]:8443")
	})
	text, err := os.ReadFile(filepath.Join(dir, "aggregators.json"))
	if want := `{"version":1,"aggregators":{"replicas:8443":["10.0.0.5:8443","[fd00::6]:8443"]}}` + "\n"; err != nil || string(text) != want {
		t.Errorf("the file has %q (%v), want %q", text, err, want)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &dns{err: errors.New("connection refused")}
		f := follow(t, name, d, Open(dir, targets, quiet()))
		f.is(time.Minute, "10.0.0.5:8443 [fd00::6]:8443")
		d.set(nil, "10.0.0.7")
		f.is(time.Minute, "10.0.0.5:8443 [fd00::6]:8443", "10.0.0.7:8443")
	})
	if got := Open(dir, targets, quiet()).recall(target(t, name)); !slices.Equal(got, []string{"10.0.0.7:8443"}) {
		t.Errorf("remembered %v", got)
	}
	// A name that is not asked for any more is forgotten with the next that is kept.
	Open(dir, targets[1:], quiet()).keep(targets[1], []string{"10.0.0.8:1"})
	if got := Open(dir, targets, quiet()).recall(targets[0]); got != nil {
		t.Errorf("still remembered: %v", got)
	}
}

func TestNoMemory(t *testing.T) {
	var none *File
	none.keep(target(t, name), []string{"10.0.0.5:8443"})
	if got := none.recall(target(t, name)); got != nil {
		t.Errorf("recalled %v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &dns{err: errors.New("connection refused")}
		f := follow(t, name, d, nil)
		f.is(time.Hour)
		d.set(nil, "10.0.0.7")
		f.is(31*time.Second, "10.0.0.7:8443")
	})
}

// What nobody could have written is not used, and does no harm.
func TestGarbledFile(t *testing.T) {
	for what, text := range map[string]string{
		"nothing":           "",
		"no JSON":           "{\"version\":1,",
		"another version":   `{"version":2,"aggregators":{"replicas:8443":["10.0.0.5:8443"]}}`,
		"a name":            `{"version":1,"aggregators":{"replicas:8443":["example.org:8443"]}}`,
		"no port":           `{"version":1,"aggregators":{"replicas:8443":["10.0.0.5"]}}`,
		"no host's address": `{"version":1,"aggregators":{"replicas:8443":["0.0.0.0:8443"]}}`,
		"too many":          `{"version":1,"aggregators":{"replicas:8443":[` + strings.Repeat(`"10.0.0.5:8443",`, 16) + `"10.0.0.5:8443"]}}`,
		"too long":          `{"version":1,"aggregators":{}}` + strings.Repeat(" ", 64<<10),
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "aggregators.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			f := Open(dir, []Target{target(t, name)}, slog.New(slog.NewTextHandler(&log, nil)))
			if got := f.recall(target(t, name)); got != nil || !strings.Contains(log.String(), "cannot be read") {
				t.Errorf("recalled %v, told %q", got, log.String())
			}
			f.keep(target(t, name), []string{"10.0.0.6:8443"})
			if got := Open(dir, []Target{target(t, name)}, quiet()).recall(target(t, name)); len(got) != 1 {
				t.Errorf("it is not replaced: %v", got)
			}
		})
	}
}

// A folder that cannot be written costs the memory, and is told once.
func TestFolderThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	synctest.Test(t, func(t *testing.T) {
		d := &dns{answer: []string{"10.0.0.5"}}
		memory := &File{dir: dir, log: slog.New(slog.NewTextHandler(&log, nil)), written: map[string][]string{}}
		follow(t, name, d, memory).is(10*time.Minute, "10.0.0.5:8443")
	})
	if got := strings.Count(log.String(), "cannot be remembered"); got != 1 {
		t.Errorf("told %d times:\n%s", got, log.String())
	}
}

// A disk that hangs keeps nobody from the addresses.
func TestDiskThatHangs(t *testing.T) {
	memory := &File{dir: t.TempDir(), log: quiet(), written: map[string][]string{}}
	memory.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	found, ended := make(chan []string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		finder := Finder{Resolver: &dns{answer: []string{"10.0.0.5"}}, Memory: memory, Log: quiet()}
		finder.Follow(ctx, target(t, name), nil, func(addresses []string) { found <- addresses })
	}()
	select {
	case got := <-found:
		if !slices.Equal(got, []string{"10.0.0.5:8443"}) {
			t.Errorf("found %v", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("the addresses wait for the disk")
	}
	cancel()
	memory.mu.Unlock()
	<-ended
}

// A pipe in place of what is unfinished does not hold the agent up.
func TestPipeInPlaceOfTheUnfinishedFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "aggregators.json.unfinished"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Open(dir, nil, slog.New(slog.NewTextHandler(&log, nil))).keep(target(t, name), []string{"10.0.0.5:8443"})
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("it waits for somebody to read the pipe")
	}
	if !strings.Contains(log.String(), "cannot be remembered") {
		t.Errorf("told %q", log.String())
	}
}

// An agent that died in the middle of writing leaves the file that was there.
func TestUnfinishedFile(t *testing.T) {
	f := remembering(t, "10.0.0.5:8443")
	if err := os.WriteFile(filepath.Join(f.dir, "aggregators.json.unfinished"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := Open(f.dir, []Target{target(t, name)}, quiet())
	if got := again.recall(target(t, name)); !slices.Equal(got, []string{"10.0.0.5:8443"}) {
		t.Errorf("recalled %v", got)
	}
	again.keep(target(t, name), []string{"10.0.0.6:8443"})
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v (%v)", entries, err)
	}
}
