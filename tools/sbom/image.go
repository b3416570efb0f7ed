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

// Where an image has the program, and the control files of the Debian packages that it has files of.
const (
	programFolder = "usr/bin"
	packageFolder = "var/lib/dpkg/status.d"
)

// errNoProgram says that an image is none of Offramp's.
var errNoProgram = errors.New("the image has no program in /" + programFolder)

// ofImage lists the modules of the image's program, and its Debian packages.
func ofImage(archive, version string) (*cdx.BOM, error) {
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the image: %w", err)
	}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	scratch, err := os.MkdirTemp("", "offramp-sbom-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	program, packages, err := unpack(files, scratch)
	if err != nil {
		return nil, err
	}
	bom, err := ofBinary(program, version)
	if err != nil {
		return nil, err
	}
	addPackages(bom, packages)
	return bom, nil
}

// unpack writes the program to a folder, and returns its path there and the packages' control files.
func unpack(files io.Reader, scratch string) (program string, packages []control, err error) {
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && program == "":
			return "", nil, errNoProgram
		case errors.Is(err, io.EOF):
			return program, packages, nil
		case err != nil:
			return "", nil, fmt.Errorf("reading the image's files: %w", err)
		case header.Typeflag != tar.TypeReg:
			continue
		}
		switch path.Dir(path.Clean(header.Name)) {
		case programFolder:
			program = filepath.Join(scratch, path.Base(header.Name))
			err = save(archive, program)
		case packageFolder:
			var text []byte
			text, err = io.ReadAll(archive)
			packages = append(packages, parseControl(string(text)))
		}
		if err != nil {
			return "", nil, fmt.Errorf("reading %s of the image: %w", header.Name, err)
		}
	}
}

func save(from io.Reader, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}

// addPackages adds packages to a list, in the order of their names.
func addPackages(bom *cdx.BOM, packages []control) {
	if len(packages) == 0 {
		return
	}
	slices.SortFunc(packages, func(a, b control) int { return strings.Compare(a["Package"], b["Package"]) })
	var all []cdx.Component
	if bom.Components != nil {
		all = *bom.Components
	}
	for _, one := range packages {
		all = append(all, one.component())
	}
	bom.Components = &all
}
