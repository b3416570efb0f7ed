package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Options say which images are built.
type Options struct {
	// Registry and Tag make the images' names; Tag must not be empty.
	Registry, Tag string
	// Platform is what the images are for, as linux/arm64; empty is the host's own.
	Platform string
	// Log takes what the build prints.
	Log io.Writer
}

// Name is the whole name of an image.
func (o Options) Name(image string) string { return o.Registry + "/" + image + ":" + o.Tag }

// Build builds both images by `make images`, as everybody does; only the network is the host's, since the daemon makes none.
func Build(ctx context.Context, d *Daemon, o Options) error {
	if err := StandIn(ctx, d); err != nil {
		return fmt.Errorf("standing in for %s: %w", BaseImage, err)
	}
	proxy, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output()
	if err != nil {
		return fmt.Errorf("asking go for its proxy: %w", err)
	}
	make := exec.CommandContext(ctx, "make", "images", "REGISTRY="+o.Registry, "TAG="+o.Tag, "PLATFORM="+o.Platform, "DOCKER="+d.Client,
		"IMAGE_FLAGS=--progress=plain --network=host --build-arg GOPROXY="+strings.TrimSpace(string(proxy)))
	make.Dir = Source()
	make.Env = append(os.Environ(), d.Environment()...)
	make.Stdout, make.Stderr, make.WaitDelay = o.Log, o.Log, time.Second
	if err := make.Run(); err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	return d.forget(ctx)
}

// forget drops what no name points to, and old parts of builds: the folder of images must not grow without end.
func (d *Daemon) forget(ctx context.Context) error {
	if _, err := d.Run(ctx, nil, "image", "prune", "--force"); err != nil {
		return err
	}
	_, err := d.Run(ctx, nil, "builder", "prune", "--force", "--keep-storage", "4GB")
	return err
}

// Save writes an image to a file, as docker load and ctr import read it.
func (d *Daemon) Save(ctx context.Context, image, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the folder of images: %w", err)
	}
	_, err := d.Run(ctx, nil, "save", "--output", path, image)
	return err
}

// Source is the top folder of this repository.
func Source() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
