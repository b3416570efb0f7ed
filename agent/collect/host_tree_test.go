package collect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/nstest"
)

func openTree(t *testing.T, host Host) *hostTree {
	t.Helper()
	tree, err := openHostTree(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.close() })
	return tree
}

func link(t *testing.T, target, at string) {
	t.Helper()
	if err := os.Symlink(target, at); err != nil {
		t.Fatal(err)
	}
}

func TestHostTreeStaysBelowItsRoot(t *testing.T) {
	host := hostOf(t, map[string]string{"etc/os-release": "ID=x\n", "etc/real": "inside", "srv/dir/file": "there"})
	outside := filepath.Join(t.TempDir(), "secret")
	writeFile(t, outside, "outside")
	link(t, "/etc/real", filepath.Join(host.Root, "absolute"))
	link(t, "../../../../../../../../etc/real", filepath.Join(host.Root, "up"))
	link(t, outside, filepath.Join(host.Root, "out"))
	link(t, "/srv", filepath.Join(host.Root, "etc/folder"))
	link(t, "/proc/self/root/etc/passwd", filepath.Join(host.Root, "magic"))
	tree := openTree(t, host)
	for name, want := range map[string]string{
		"etc/real": "inside", "absolute": "inside", "up": "inside", "etc/folder/dir/file": "there", "../etc/real": "inside",
		"out": "not in sight", "magic": "not in sight", "etc": "not a regular file", "etc/none": "(absent)", "etc/real/x": "(absent)",
	} {
		content, found, err := tree.read(name)
		got := string(content)
		switch {
		case err != nil:
			got = err.Error()
		case !found:
			got = "(absent)"
		}
		if !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestHostTreeRefusesWhatIsNoFile(t *testing.T) {
	host := hostOf(t, map[string]string{"big": strings.Repeat("x", maxHostFile+1), "just": strings.Repeat("x", maxHostFile)})
	if err := syscall.Mkfifo(filepath.Join(host.Root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	link(t, "loop", filepath.Join(host.Root, "loop"))
	tree := openTree(t, host)
	for name, want := range map[string]error{"big": errTooBig, "just": nil, "pipe": errNotRegular, "loop": unix.ELOOP} {
		if _, _, err := tree.read(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for i := range maxListed + 1 {
		writeFile(t, filepath.Join(host.Root, "many", strings.Repeat("x", i/200+1)+string(rune('a'+i%200))), "")
	}
	if _, _, err := tree.list("many"); !errors.Is(err, errTooBig) {
		t.Errorf("a folder with too much: %v", err)
	}
}

// A root that shows no host proves nothing absent, except below what is mounted there from the host.
func TestWhatIsNotMountedIsNotInSight(t *testing.T) {
	tree := openTree(t, hostOf(t, map[string]string{"etc/hostname": "pod\n"}))
	for _, name := range []string{"etc/kubernetes/manifests", "var/lib/kube-proxy", "etc/ipset.conf"} {
		if _, found, err := tree.read(name); found || !errors.Is(err, errNotInSight) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	whole := openTree(t, hostOf(t, map[string]string{"etc/os-release": "ID=x\n"}))
	if _, found, err := whole.list("etc/kubernetes/manifests"); found || err != nil {
		t.Errorf("of a whole host: %v, %v", found, err)
	}
}

func TestMountsShowWhatIsTheHosts(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	host := hostOf(t, map[string]string{"etc/kubernetes/x": "", "etc/os-release": "ID=alpine\n", "var/lib/y": ""})
	real := t.TempDir()
	writeFile(t, filepath.Join(real, "os-release"), "ID=debian\n")
	for source, at := range map[string]string{
		real: "etc/kubernetes", filepath.Join(real, "os-release"): "etc/os-release",
	} {
		if err := unix.Mount(source, filepath.Join(host.Root, at), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(filepath.Join(host.Root, at), unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	tree := openTree(t, host)
	got := map[string]bool{}
	for _, name := range []string{"etc/kubernetes/manifests", "etc/kubernetes/a/b/c", "etc/sysconfig/ipset", "var/lib/kube-proxy", "srv"} {
		_, _, err := tree.list(name)
		got[name] = err == nil
	}
	want := map[string]bool{
		"etc/kubernetes/manifests": true, "etc/kubernetes/a/b/c": true, "etc/sysconfig/ipset": false, "var/lib/kube-proxy": false, "srv": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRootOfAContainer(t *testing.T) {
	mount := func(line string) map[string]string { return map[string]string{"proc/self/mountinfo": line} }
	for name, test := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"a disk":     {mount("27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"), false},
		"an overlay": {mount("1 0 0:9 / /proc rw - proc proc rw\n27 1 0:50 / / ro master:1 - overlay overlay rw\n"), true},
		"beside one": {mount("27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 0:50 / /var/lib/x rw - overlay overlay rw\n"), false},
		"a mark":     {mergeFiles(mount("27 1 254:0 / / rw - ext4 /dev/vda rw\n"), map[string]string{".dockerenv": ""}), true},
		"no sight":   {nil, true},
	} {
		if got := isContainerRoot(hostOf(t, test.files)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestGap(t *testing.T) {
	tree := openTree(t, hostOf(t, map[string]string{"etc/a": ""}))
	for name, want := range map[string]string{"etc/x/y/z": "etc/x", "etc/x": "etc/x", "var/lib/x": "var", "var": "var"} {
		if got := tree.gap(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// What was found in a file is kept until the file is another one.
func TestFilesAreSearchedOnce(t *testing.T) {
	host := hostOf(t, map[string]string{"etc/os-release": "ID=x\n", "a": "one\ntwo\n"})
	searched := 0
	search := &searcher{tree: openTree(t, host), cache: &fileCache{}}
	look := func() []string {
		lines, found, err := search.lines("x", "a", func(line string) []string { searched++; return []string{strings.TrimSpace(line)} })
		if !found || err != nil {
			t.Fatal(found, err)
		}
		return lines
	}
	if diff := cmp.Diff(look(), look()); diff != "" || searched != 2 {
		t.Errorf("%d lines were looked at\n%s", searched, diff)
	}
	writeFile(t, filepath.Join(host.Root, "a"), "three\n")
	if diff := cmp.Diff([]string{"three"}, look()); diff != "" {
		t.Error(diff)
	}
}

func TestSearchLinesIsBounded(t *testing.T) {
	all := func(line string) []string { return []string{line} }
	if _, err := searchLines(zeros{}, make([]byte, searchBlock), all); !errors.Is(err, errTooBig) {
		t.Errorf("a file without end: %v", err)
	}
	lines, err := searchLines(strings.NewReader(strings.Repeat("x\n", 10*maxListed)), make([]byte, searchBlock), all)
	if err != nil || len(lines) > maxListed {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) { clear(buffer); return len(buffer), nil }
