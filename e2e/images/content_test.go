package images

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is in the images is written down, file by file: what a base image or a package adds one day has to be wanted.
func TestImagesHoldOnlyWhatIsWrittenDown(t *testing.T) {
	for _, name := range []string{Agent, Aggregator} {
		image := open(t, name)
		written, err := os.ReadFile(filepath.Join("testdata", name+"."+image.Config.Architecture+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Fields(string(written)), generic(image)); diff != "" {
			t.Errorf("%s: written down (-), in the image (+):\n%s", name, diff)
		}
		t.Logf("%s for %s: %d files, %.1f MB", name, image.Config.Architecture, len(image.Files), float64(image.Size())/1e6)
	}
}

// generic are the names of an image's files, with MACHINE for the folder of an architecture, and VERSION for what differs by the
// version of a library.
func generic(image *Image) []string {
	var names []string
	for _, name := range image.Names() {
		name = strings.NewReplacer("x86_64-linux-gnu", "MACHINE", "aarch64-linux-gnu", "MACHINE").Replace(name)
		if folder, file := path.Split(name); strings.Count(file, ".") > 2 && strings.Contains(file, ".so.") {
			stem, version, _ := strings.Cut(file, ".so.")
			major, _, _ := strings.Cut(version, ".")
			name = folder + stem + ".so." + major + ".VERSION"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Programs are the two of Offramp and the one that deletes legacy rules. No shell, and no script that wants one.
func TestImagesHoldNoShell(t *testing.T) {
	wanted := map[string][]string{
		Agent:      {"usr/bin/offramp-agent", "usr/sbin/xtables-legacy-multi"},
		Aggregator: {"usr/bin/offramp-aggregator"},
	}
	for name, want := range wanted {
		var programs []string
		for file, entry := range open(t, name).Files {
			switch {
			case bytes.HasPrefix(entry.Content, []byte("#!")):
				t.Errorf("%s: %s is a script", name, file)
			case entry.Link == "" && entry.Mode&0o111 != 0 && !strings.Contains(file, ".so"):
				programs = append(programs, file)
			case entry.Mode&0o6000 != 0:
				t.Errorf("%s: %s has the mode %o", name, file, entry.Mode)
			}
		}
		slices.Sort(programs)
		if diff := cmp.Diff(want, programs); diff != "" {
			t.Errorf("%s: programs wanted (-), in the image (+):\n%s", name, diff)
		}
	}
}

// A container of the aggregator is nobody; the agent is root, since the kernel gives capabilities to no other.
func TestImagesSayWhatTheyAre(t *testing.T) {
	for name, want := range map[string]struct{ user, path string }{
		Agent: {"0:0", "PATH=/usr/bin:/usr/sbin"}, Aggregator: {"65532:65532", "PATH=/usr/bin"},
	} {
		config := open(t, name).Config.Config
		if config.User != want.user {
			t.Errorf("%s runs as %q, want %q", name, config.User, want.user)
		}
		if diff := cmp.Diff([]string{"/usr/bin/" + name}, slices.Concat(config.Entrypoint, config.Cmd)); diff != "" {
			t.Errorf("%s: what it starts with:\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{want.path}, config.Env); diff != "" {
			t.Errorf("%s: environment:\n%s", name, diff)
		}
		const label = "org.opencontainers.image."
		stamps := map[string]string{"title": name, "version": stamp(t, "VERSION"), "revision": stamp(t, "COMMIT"), "created": stamp(t, "DATE")}
		for key, value := range stamps {
			if config.Labels[label+key] != value || value == "" {
				t.Errorf("%s: the label %s is %q, want %q", name, key, config.Labels[label+key], value)
			}
		}
	}
}

// stamp asks the Makefile.
func stamp(t *testing.T, variable string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", "--silent", "--eval", "stamp-of: ; @echo '$("+variable+")'", "stamp-of")
	command.Dir = Source()
	out, err := command.Output()
	if err != nil {
		t.Fatalf("asking make for %s: %v", variable, err)
	}
	return strings.TrimSpace(string(out))
}

// The binaries are those of make build on this host, in this folder: neither where nor when one builds is in them.
func TestImagesHoldTheSameBinaries(t *testing.T) {
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "make", "build-agent", "build-aggregator", "BIN="+dir)
	command.Dir, command.Env = Source(), append(os.Environ(), "GOOS=linux", "GOARCH="+open(t, Agent).Config.Architecture)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v: %s", err, out)
	}
	for _, name := range []string{Agent, Aggregator} {
		built, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if inside := open(t, name).Files["usr/bin/"+name].Content; !bytes.Equal(built, inside) {
			t.Errorf("%s: make build makes %d bytes, in the image are %d that are not the same", name, len(built), len(inside))
		}
	}
}
