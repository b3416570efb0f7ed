package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Where an image has the program, the control files of the Debian packages that it has files of, and which Debian that is.
const (
	programFolder = "usr/bin"
	packageFolder = "var/lib/dpkg/status.d"
	releaseFile   = "usr/lib/os-release"
	// versionLabel is what the image says of its version.
	versionLabel = "org.opencontainers.image.version"
)

// errNoProgram says that an image is none of Offramp's.
var errNoProgram = errors.New("the image has no program in /" + programFolder)

// ofImage lists the modules of the image's program, and its Debian packages.
func ofImage(archive, version string) (*cdx.BOM, error) {
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	if labelled := config.Config.Labels[versionLabel]; labelled != "" {
		version = labelled
	}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	scratch, err := os.MkdirTemp("", "offramp-sbom-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	found, err := unpack(files, scratch)
	if err != nil {
		return nil, err
	}
	bom, err := ofBinary(found.program, version)
	if err != nil {
		return nil, err
	}
	addPackages(bom, found)
	return bom, nil
}

// contents is what a list is made from.
type contents struct {
	// program is the path of a copy of the image's program.
	program string
	// packages are the control files of packages, and release is Debian's, as "13"; both may be missing.
	packages []control
	release  string
}

// unpack looks through the files of an image and copies the program to a folder.
func unpack(files io.Reader, scratch string) (*contents, error) {
	found := &contents{}
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && found.program == "":
			return nil, errNoProgram
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("reading the image's files: %w", err)
		case header.Typeflag != tar.TypeReg:
			continue
		}
		if err := found.take(path.Clean(header.Name), archive, scratch); err != nil {
			return nil, fmt.Errorf("reading %s of the image: %w", header.Name, err)
		}
	}
}

func (c *contents) take(name string, file io.Reader, scratch string) error {
	switch {
	case path.Dir(name) == programFolder:
		c.program = filepath.Join(scratch, path.Base(name))
		return save(file, c.program)
	case path.Dir(name) == packageFolder:
		text, err := io.ReadAll(file)
		c.packages = append(c.packages, parseControl(string(text)))
		return err
	case name == releaseFile:
		text, err := io.ReadAll(file)
		_, after, _ := strings.Cut("\n"+string(text), "\nVERSION_ID=")
		line, _, _ := strings.Cut(after, "\n")
		c.release = strings.Trim(line, `"`)
		return err
	}
	return nil
}

func save(from io.Reader, path string) error {
	file, err := os.Create(path) //nolint:gosec // in a folder that was just made, by its last name alone
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}

// addPackages adds packages to a list, in the order of their names.
func addPackages(bom *cdx.BOM, found *contents) {
	if len(found.packages) == 0 {
		return
	}
	slices.SortFunc(found.packages, func(a, b control) int { return strings.Compare(a["Package"], b["Package"]) })
	var all []cdx.Component
	if bom.Components != nil {
		all = *bom.Components
	}
	for _, one := range found.packages {
		all = append(all, one.component(found.release))
	}
	bom.Components = &all
}
