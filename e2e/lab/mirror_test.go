package lab

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func compare(t *testing.T, want, got any) {
	t.Helper()
	everything := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, got, everything); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

func TestParseOneLine(t *testing.T) {
	got := parseOneLine(`# deb http://commented.example/debian bookworm main
deb http://plain.example/debian bookworm main contrib # why
deb   [arch=amd64 signed-by=/k.gpg]  https://option.example/debian/ trixie main
deb-src http://source.example/debian bookworm main
deb cdrom:[x]/
nonsense
`)
	compare(t, []source{
		{uri: "http://plain.example/debian", suite: "bookworm"},
		{uri: "https://option.example/debian/", suite: "trixie", signedBy: "/k.gpg"},
	}, got)
}

func TestParseDeb822(t *testing.T) {
	got := parseDeb822(`Types: deb deb-src
# a comment between fields
URIs: http://a.example/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm

types: deb
uris: http://b.example/debian http://c.example/debian
suites: trixie
signed-by:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865
 -----END PGP PUBLIC KEY BLOCK-----
`)
	const key = "/usr/share/keyrings/debian-archive-keyring.gpg"
	compare(t, []source{
		{uri: "http://a.example/debian", suite: "bookworm", signedBy: key},
		{uri: "http://a.example/debian", suite: "bookworm-updates", signedBy: key},
		{uri: "http://b.example/debian", suite: "trixie"},
		{uri: "http://c.example/debian", suite: "trixie"},
	}, got)
}

func aptFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMirror(t *testing.T) {
	const others = "deb http://x.example/debian-security bookworm-security main\ndeb http://x.example/debian bookworm-backports main\ndeb http://x.example/apt bookworm main\n"
	for _, c := range []struct {
		name, variable, want string
		files                map[string]string
	}{
		{"nothing", "", "", nil},
		{"others only", "", "", map[string]string{"sources.list": others}},
		{"after others", "", "http://m.example/debian/", map[string]string{"sources.list": others + "deb http://m.example/debian/ bookworm main\n"}},
		{"part", "", "http://p.example/mirror/debian", map[string]string{"sources.list.d/a.list": "deb http://p.example/mirror/debian sid main\n"}},
		{"deb822", "", "http://d.example/debian", map[string]string{"sources.list.d/debian.sources": "Types: deb\nURIs: http://d.example/debian\nSuites: bookworm\n"}},
		{"disabled file", "", "", map[string]string{"sources.list.d/debian.sources.off": "Types: deb\nURIs: http://d.example/debian\nSuites: bookworm\n"}},
		{"variable", "http://v.example/d", "http://v.example/d", map[string]string{"sources.list": "deb http://m.example/debian/ bookworm main\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(MirrorVariable, c.variable)
			got, err := mirror(aptFolder(t, c.files))
			if got.uri != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q (%v), want %q", got.uri, err, c.want)
			}
		})
	}
}

func FuzzSources(f *testing.F) {
	f.Add("deb [a=b] http://x y z")
	f.Add("Types: deb\nURIs: x\nSuites: y\n z")
	f.Add("deb [")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range append(parseOneLine(text), parseDeb822(text)...) {
			if s.uri == "" || s.suite == "" {
				t.Errorf("%q has an empty source %+v", text, s)
			}
		}
	})
}
