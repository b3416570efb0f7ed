package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"offramp.dev/offramp/internal/nstest"
)

// folderVariable tells a test process that another one started, as nstest does, where the images were saved.
const folderVariable = "OFFRAMP_E2E_IMAGES"

// platformVariable asks for images of another platform, as linux/arm64. They are looked at, and cannot be run here.
const platformVariable = "OFFRAMP_E2E_PLATFORM"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// testMain builds the images once, for all tests.
func testMain(m *testing.M) int {
	if os.Getenv(folderVariable) != "" {
		return m.Run()
	}
	if err := possible(); err != nil {
		fmt.Fprintln(os.Stderr, "no images here:", err)
		if os.Getenv(nstest.RequireKernel) == "1" {
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "offramp-images-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := buildAll(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, "building the images under test:", err)
		return 1
	}
	if err := os.Setenv(folderVariable, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func possible() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	for _, program := range []string{"dockerd", "unshare", "debootstrap", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("needs a program: %w", err)
		}
	}
	return nil
}

func tested() Options {
	return Options{Registry: "registry.example/offramp", Tag: "under-test", Platform: os.Getenv(platformVariable), Log: os.Stderr}
}

// buildAll builds the images and saves them in a folder. The daemon has ended when it returns.
func buildAll(ctx context.Context, dir string) (err error) {
	data, err := DataFolder()
	if err != nil {
		return err
	}
	daemon, err := Start(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Stop()) }()
	if err := Build(ctx, daemon, tested()); err != nil {
		return err
	}
	for _, image := range []string{Agent, Aggregator} {
		if err := daemon.Save(ctx, tested().Name(image), filepath.Join(dir, image+".tar")); err != nil {
			return err
		}
	}
	return nil
}

func open(t *testing.T, image string) *Image {
	t.Helper()
	opened, err := Open(filepath.Join(os.Getenv(folderVariable), image+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	return opened
}
