package nstest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIsInside(t *testing.T) {
	for _, c := range []struct {
		name, marker string
		want         bool
	}{
		{"TestA", "", false},
		{"TestA", "TestA", true},
		{"TestA", "TestA/sub", true},
		{"TestA", "TestAB", false},
		{"TestA/sub", "TestA", false},
		{"TestA/sub", "TestA/sub/deeper", true},
	} {
		if got := isInside(c.name, c.marker); got != c.want {
			t.Errorf("isInside(%q, %q) = %v", c.name, c.marker, got)
		}
	}
}

func TestPattern(t *testing.T) {
	for name, want := range map[string]string{
		"TestA":              "^TestA$",
		"TestA/b":            "^TestA$/^b$",
		"TestA/1.0_(x)#01":   `^TestA$/^1\.0_\(x\)#01$`,
		"TestA/a/b|c":        `^TestA$/^a$/^b\|c$`,
		"TestA/[::1]:80_tcp": `^TestA$/^\[::1\]:80_tcp$`,
	} {
		if got := pattern(name); got != want {
			t.Errorf("pattern(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestInherited(t *testing.T) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	for _, name := range []string{"test.run", "test.coverprofile", "test.gocoverdir", "test.short", "update", "unset"} {
		flags.String(name, "", "")
	}
	given := []string{"-test.run=X", "-test.coverprofile=c", "-test.gocoverdir=/d", "-test.short=true", "-update=all"}
	if err := flags.Parse(given); err != nil {
		t.Fatal(err)
	}
	want := []string{"-test.gocoverdir=/d", "-test.short=true", "-update=all"}
	if diff := cmp.Diff(want, inherited(flags)); diff != "" {
		t.Error(diff)
	}
}

func TestRelay(t *testing.T) {
	var out strings.Builder
	r := newRelay(&out, "TestA")
	for _, piece := range []string{"=== RUN   TestA\nhel", "lo\n    --- FAIL: TestA/b (0.00s)\n--- PA", "SS: TestA (0.01s)\nPASS\nno end"} {
		if n, err := r.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	r.flush()
	want := "| hello\n|     --- FAIL: TestA/b (0.00s)\n| --- PASS: TestA (0.01s)\n| no end\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if !r.passed || r.skipped {
		t.Errorf("passed %v, skipped %v", r.passed, r.skipped)
	}
}

func TestHasFeature(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"sys/module/nf_conntrack/x": "",
		"proc/modules":              "veth 40960 0 - Live 0x0000000000000000\n",
		"proc/kallsyms":             "0000000000000000 T ip_set_add\n0000000000000000 t my_dummy_setup [other]\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for feature, want := range map[string]bool{
		"nf_conntrack": true, "veth": true, "ip_set": true, "dummy": false, "ip_vs": false, "ve": false, "unheard_of": false,
	} {
		if got := hasFeature(root, feature); got != want {
			t.Errorf("hasFeature(%q) = %v, want %v", feature, got, want)
		}
	}
}
