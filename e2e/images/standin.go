package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"offramp.dev/offramp/e2e/lab"
)

// StandIn makes the base image that the Dockerfiles name out of Debian's archive and the host's Go, unless the daemon has it.
func StandIn(ctx context.Context, d *Daemon) error {
	mark := "offramp-stand-in:" + runtime.Version()
	if _, err := d.Run(ctx, nil, "image", "inspect", mark); err == nil {
		return nil
	}
	root, err := os.MkdirTemp("", "offramp-base-")
	if err != nil {
		return fmt.Errorf("making a folder for the base image: %w", err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := os.Chmod(root, 0o755); err != nil {
		return fmt.Errorf("opening the base image's folder: %w", err)
	}
	if err := lab.Debootstrap(ctx, suite, root, "make", "ca-certificates"); err != nil {
		return err
	}
	if err := addHost(ctx, root); err != nil {
		return err
	}
	if err := d.importFolder(ctx, root, BaseImage); err != nil {
		return err
	}
	_, err = d.Run(ctx, nil, "tag", BaseImage, mark)
	return err
}

// addHost adds the host's Go, and the authorities that the host trusts: one of them may stand between it and the world.
func addHost(ctx context.Context, root string) error {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("asking go where it is: %w", err)
	}
	for from, to := range map[string]string{
		strings.TrimSpace(string(goroot)) + "/.": "/usr/local/go",
		"/etc/ssl/certs/ca-certificates.crt":     "/etc/ssl/certs/ca-certificates.crt",
	} {
		if err := os.MkdirAll(filepath.Dir(root+to), 0o755); err != nil {
			return fmt.Errorf("making a folder of the base image: %w", err)
		}
		if out, err := exec.CommandContext(ctx, "cp", "--recursive", "--dereference", from, root+to).CombinedOutput(); err != nil {
			return fmt.Errorf("copying %s: %w: %s", from, err, out)
		}
	}
	return nil
}

// importFolder makes an image of a folder, with the environment that the official image of Go has.
func (d *Daemon) importFolder(ctx context.Context, root, name string) error {
	pack := exec.CommandContext(ctx, "tar", "--create", "--numeric-owner", "--directory", root, ".")
	archive, err := pack.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := pack.Start(); err != nil {
		return fmt.Errorf("starting tar: %w", err)
	}
	_, err = d.Run(ctx, archive, "import",
		"--change", "ENV PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"--change", "ENV GOPATH=/go", "--change", "ENV GOTOOLCHAIN=local", "--change", "WORKDIR /go", "-", name)
	if ended := pack.Wait(); err == nil && ended != nil {
		return fmt.Errorf("packing the base image: %w", ended)
	}
	return err
}
