package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
)

// Image is what a saved image holds.
type Image struct {
	// Files are all entries but folders, by their path without a slash at its start.
	Files map[string]File
	// Config is what a container of it starts with.
	Config Config
}

// File is a file or a symbolic link of an image.
type File struct {
	// Mode is the permissions; Link where a symbolic link leads.
	Mode int64
	Link string
	// Content is the bytes of a regular file.
	Content []byte
}

// Config is the part of an image's configuration that matters here, under the names of the OCI image specification.
type Config struct {
	Architecture string
	Config       struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
	}
}

// Size is the sum of the sizes of all files, in bytes.
func (i *Image) Size() (bytes int) {
	for _, file := range i.Files {
		bytes += len(file.Content)
	}
	return bytes
}

// Names are the paths of the files, sorted.
func (i *Image) Names() []string { return slices.Sorted(maps.Keys(i.Files)) }

// Open reads a file that Save wrote.
func Open(archive string) (*Image, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("opening an image: %w", err)
	}
	defer func() { _ = file.Close() }()
	members, err := unpack(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", archive, err)
	}
	image := &Image{Files: map[string]File{}}
	if err := image.fill(members); err != nil {
		return nil, fmt.Errorf("reading %s: %w", archive, err)
	}
	return image, nil
}

// fill follows the archive's manifest to the configuration and to the layers, of which the later ones count. None of the two
// images' layers deletes anything.
func (i *Image) fill(members map[string]File) error {
	var manifest []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(members["manifest.json"].Content, &manifest); err != nil || len(manifest) != 1 {
		return fmt.Errorf("%d images in the manifest, want one: %w", len(manifest), err)
	}
	if err := json.Unmarshal(members[manifest[0].Config].Content, &i.Config); err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	for _, layer := range manifest[0].Layers {
		files, err := unpack(bytes.NewReader(members[layer].Content))
		if err != nil {
			return fmt.Errorf("layer %s: %w", layer, err)
		}
		maps.Copy(i.Files, files)
	}
	return nil
}

// unpack reads an archive of tar.
func unpack(from io.Reader) (map[string]File, error) {
	files := map[string]File{}
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading an archive: %w", err)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", header.Name, err)
		}
		files[path.Clean(header.Name)] = File{Mode: header.Mode, Link: header.Linkname, Content: content}
	}
}
