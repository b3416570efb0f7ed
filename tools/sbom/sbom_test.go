package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// image saves an image with these files, and returns the archive's path.
func image(t *testing.T, files map[string][]byte) string {
	t.Helper()
	var layer bytes.Buffer
	out := tar.NewWriter(&layer)
	for path, content := range files {
		if err := errors.Join(out.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}),
			second(out.Write(content))); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	whole, err := mutate.AppendLayers(empty.Image, []v1.Layer{made}...)
	if err != nil {
		t.Fatal(err)
	}
	whole, err = mutate.Config(whole, v1.Config{Labels: map[string]string{versionLabel: "v1.2.3"}})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.example/offramp-agent:1")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "offramp-agent.tar")
	if err := tarball.WriteToFile(path, tag, whole); err != nil {
		t.Fatal(err)
	}
	return path
}

func second(_ int, err error) error { return err }

// self is a Go program: this test.
func self(t *testing.T) []byte {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

const libmnl = `Package: libmnl0
Source: libmnl (1.0.5-3)
Version: 1.0.5-3+b1
Architecture: arm64
Maintainer: Debian Netfilter Packaging Team
Description: minimalistic Netlink communication library
 libmnl is a minimalistic user-space library: oriented to Netlink developers.
`

func TestImageOfModulesAndPackages(t *testing.T) {
	archive := image(t, map[string][]byte{"usr/bin/offramp-agent": self(t), "var/lib/dpkg/status.d/libmnl0": []byte(libmnl),
		"usr/lib/os-release": []byte("ID=debian\nVERSION_ID=\"13\"\n")})
	path, err := list(archive, t.TempDir(), "v9: what somebody builds now")
	if err != nil {
		t.Fatal(err)
	}
	bom := decode(t, path)
	if got := bom.Metadata.Component.Version; got != "v1.2.3" {
		t.Errorf("the version is %q, want v1.2.3", got)
	}
	for _, want := range []string{"github.com/google/go-containerregistry", "std", "libmnl0"} {
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == want }) {
			t.Errorf("%s is not in the list", want)
		}
	}
	last := (*bom.Components)[len(*bom.Components)-1]
	if want := "pkg:deb/debian/libmnl0@1.0.5-3+b1?arch=arm64&distro=debian-13&upstream=libmnl%401.0.5-3"; last.PackageURL != want {
		t.Errorf("the package is %s, want %s", last.PackageURL, want)
	}
}

func decode(t *testing.T, path string) *cdx.BOM {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bom := &cdx.BOM{}
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom
}

func TestTheSameProgramGivesTheSameList(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kubectl-offramp")
	if err := os.WriteFile(program, self(t), 0o600); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for range 2 {
		path, err := list(program, t.TempDir(), "v1")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] || texts[0] == "" {
		t.Error("the same program gives two lists")
	}
}

func TestNoListOfWhatIsNoProgram(t *testing.T) {
	if _, err := list(image(t, map[string][]byte{"etc/passwd": nil}), t.TempDir(), ""); !errors.Is(err, errNoProgram) {
		t.Errorf("an image without a program: %v, want %v", err, errNoProgram)
	}
	if _, err := list("/nowhere/offramp-agent", t.TempDir(), ""); err == nil {
		t.Error("a list of a file that is not there")
	}
}
