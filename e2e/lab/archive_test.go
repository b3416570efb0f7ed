package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cavaliergopher/cpio"
)

// entries reads an archive as "mode name=content" lines.
func entries(t *testing.T, content []byte) []string {
	t.Helper()
	var all []string
	in := cpio.NewReader(bytes.NewReader(content))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%o %s=%s", header.Mode, header.Name, string(data)+header.Linkname))
	}
}

func TestArchive(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	writeFile(t, host, "copied")
	a := archive{}
	a.file("/usr/bin/tool", host, 0o755)
	a.text("etc/name", "replaced")
	a.text("etc/name", "later\n")
	a.text("etc/empty", "")
	a.link("bin", "usr/bin")
	a.folder("proc")
	var out bytes.Buffer
	if err := a.write(&out); err != nil {
		t.Fatal(err)
	}
	if out.Len()%blockSize != 0 {
		t.Errorf("%d bytes are not whole blocks", out.Len())
	}
	compare(t, []string{
		"120777 bin=usr/bin", "40755 etc=", "100644 etc/empty=", "100644 etc/name=later\n", "40755 proc=",
		"40755 usr=", "40755 usr/bin=", "100755 usr/bin/tool=copied",
	}, entries(t, out.Bytes()))
}

func TestArchiveSaysWhatIsMissing(t *testing.T) {
	a := archive{}
	a.file("x", "/no/such/file", 0o644)
	if err := a.write(io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}

func TestDigestFollowsContent(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	writeFile(t, host, "one")
	build := func(text string) archive {
		a := archive{}
		a.file("f", host, 0o644)
		a.text("t", text)
		return a
	}
	first := build("a").digest()
	if again := build("a").digest(); again != first {
		t.Error("the same content has two digests")
	}
	if other := build("b").digest(); other == first {
		t.Error("another text has the same digest")
	}
	if err := os.Chtimes(host, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if changed := build("a").digest(); changed == first {
		t.Error("a changed file has the same digest")
	}
}

func TestUnderMergedUsr(t *testing.T) {
	a := archive{}
	for _, name := range []string{"/bin/a", "lib/b", "/sbin/c", "/usr/bin/d", "/etc/e", "/library/f"} {
		a.text(name, "")
	}
	a.underMergedUsr()
	var names []string
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	compare(t, []string{"etc/e", "library/f", "usr/bin/a", "usr/bin/d", "usr/lib/b", "usr/sbin/c"}, names)
}

func TestInitrdJoinsParts(t *testing.T) {
	part := filepath.Join(t.TempDir(), "part")
	writeFile(t, part, "first|")
	last := archive{}
	last.text("f", "x")
	file, err := initrd([]string{part, part}, last)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(file)
	if err != nil || !bytes.HasPrefix(content, []byte("first|first|070701")) {
		t.Errorf("it begins with %.30q (%v)", content, err)
	}
	if _, err := initrd([]string{"/no/such/part"}, last); err == nil {
		t.Error("a missing part is no error")
	}
}

// TestClosure compares with what the loader itself says, for a program with many libraries and for an extension.
func TestClosure(t *testing.T) {
	for _, path := range []string{"/proc/self/exe", "/bin/sh", "/usr/sbin/nft", "/usr/sbin/xtables-nft-multi", "/usr/sbin/ipset"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newLibraries().closure(real)
		if err != nil {
			t.Fatal(err)
		}
		for _, library := range loaded(t, real) {
			if !slices.ContainsFunc(got, func(path string) bool { return filepath.Base(path) == library }) {
				t.Errorf("%s: %s is missing from %v", path, library, got)
			}
		}
	}
	text := filepath.Join(t.TempDir(), "text")
	writeFile(t, text, "#!/bin/sh\n")
	if got, err := newLibraries().closure(text); err != nil || len(got) > 0 {
		t.Errorf("a script needs %v (%v)", got, err)
	}
	if _, err := newLibraries().closure("/no/such/file"); err == nil {
		t.Error("a missing file is no error")
	}
}

// loaded asks the program's own loader for the base names of its libraries; none for a static program.
func loaded(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.Command("/lib64/ld-linux-x86-64.so.2", "--list", path).Output()
	if err != nil {
		return nil
	}
	var names []string
	for line := range bytes.Lines(out) {
		if fields := bytes.Fields(line); len(fields) > 2 && string(fields[1]) == "=>" {
			names = append(names, filepath.Base(string(fields[0])))
		}
	}
	return names
}

func TestLoaderDirs(t *testing.T) {
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "etc/ld.so.conf"), "# comment\ninclude /etc/ld.so.conf.d/*.conf\n/last # why\n")
	writeFile(t, filepath.Join(root, "etc/ld.so.conf.d/a.conf"), "/from/a\n")
	writeFile(t, filepath.Join(root, "etc/ld.so.conf.d/b.conf"), "/from/b\n\n")
	compare(t, []string{"/from/a", "/from/b", "/last"}, loaderDirs(filepath.Join(root, "etc/ld.so.conf"), root))
}
