// Program krew makes what krew installs kubectl-offramp from: an archive for each platform and the manifest that names them with their
// real sums. Nothing is published: --base-url says where the archives are to be.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", "bin/krew", "where OS-ARCH/kubectl-offramp are and archives and manifest go")
	template := flag.String("template", "deploy/krew/offramp.yaml", "manifest without sums")
	version := flag.String("version", "", "version, such as v0.1.0")
	base := flag.String("base-url", "https://github.com/offramp-dev/offramp/releases/download", "where the archives are to be")
	licence := flag.String("licence", "LICENSE", "goes into each archive")
	flag.Parse()
	if err := run(*dir, *template, *version, *base, *licence); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(dir, template, version, base, licence string) error {
	manifest, err := os.ReadFile(template) //nolint:gosec // whoever builds names it
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, platform := range Platforms() {
		sum, err := archive(dir, platform, licence)
		if err != nil {
			return fmt.Errorf("archive of %s: %w", platform, err)
		}
		sums[platform] = sum
	}
	filled, err := Fill(manifest, version, base, sums)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "offramp.yaml"), filled, 0o644) //nolint:gosec // a public file
}

// archive packs a program and the licence, the same bytes each time, and returns the sum of the archive in hex.
func archive(dir, platform, licence string) (string, error) {
	path := filepath.Join(dir, "kubectl-offramp-"+platform+".tar.gz")
	file, err := os.Create(path) //nolint:gosec // whoever builds names it
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	zipped := gzip.NewWriter(file)
	packed := tar.NewWriter(zipped)
	if err := add(packed, program(platform), filepath.Join(dir, platform, program(platform)), 0o755); err != nil {
		return "", err
	}
	if err := add(packed, "LICENSE", licence, 0o644); err != nil {
		return "", err
	}
	if err := packed.Close(); err != nil {
		return "", err
	}
	if err := zipped.Close(); err != nil {
		return "", err
	}
	written, err := os.ReadFile(path) //nolint:gosec // whoever builds names it
	return fmt.Sprintf("%x", sha256.Sum256(written)), err
}

func add(to *tar.Writer, name, from string, mode int64) error {
	content, err := os.ReadFile(from) //nolint:gosec // whoever builds names it
	if err != nil {
		return err
	}
	if err := to.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = to.Write(content)
	return err
}

func program(platform string) string {
	if strings.HasPrefix(platform, "windows-") {
		return "kubectl-offramp.exe"
	}
	return "kubectl-offramp"
}
