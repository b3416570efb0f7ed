package nodes

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"offramp.dev/offramp/e2e/lab"
)

// Image is an image of programs that need nothing else.
type Image struct {
	// Name is its name with a tag.
	Name string
	// Files are paths on the host by paths in the image. All can be run.
	Files map[string]string
	// Command is what it runs.
	Command []string
}

// WriteImage writes an image as an archive, in the format of docker save. The same files give the same archive.
func WriteImage(path string, image Image) error {
	layer, err := image.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config": map[string]any{"Entrypoint": image.Command, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return fmt.Errorf("describing an image: %w", err)
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": digest(config) + ".json", "RepoTags": []string{image.Name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("describing an image: %w", err)
	}
	archive, err := pack([]file{{digest(config) + ".json", config}, {"layer.tar", layer}, {"manifest.json", manifest}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, archive, 0o600)
}

func (i Image) layer() ([]byte, error) {
	var files []file
	for _, path := range slices.Sorted(maps.Keys(i.Files)) {
		content, err := os.ReadFile(i.Files[path])
		if err != nil {
			return nil, fmt.Errorf("packing an image: %w", err)
		}
		files = append(files, file{strings.TrimPrefix(path, "/"), content})
	}
	return pack(files)
}

type file struct {
	name    string
	content []byte
}

func pack(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content))}); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing files: %w", err)
	}
	return out.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// keep keeps a program under a name that tells its content, so that tests that run at the same time do not replace each
// other's.
func keep(ctx context.Context, program string) (string, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("reading a built program: %w", err)
	}
	name := filepath.Join("programs", filepath.Base(program)+"-"+digest(content)[:24])
	return lab.Cached(ctx, name, func(path string) error { return os.WriteFile(path, content, 0o755) })
}
