package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

const (
	initPackage = "offramp.dev/offramp/e2e/lab/guest"
	initProgram = "/init"
)

// program builds a package of this module for guests. Go's own build cache makes that quick when nothing has changed;
// what comes out is kept under a name that tells its content, so that tests that run at the same time do not replace
// each other's.
func (l *Lab) program(ctx context.Context, pkg, name string) (string, error) {
	scratch, err := os.MkdirTemp(l.cache.dir, name+"-*.making")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	built := filepath.Join(scratch, name)
	if err := GoBuild(ctx, pkg, built); err != nil {
		return "", err
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return "", fmt.Errorf("reading a built program: %w", err)
	}
	sum := sha256.Sum256(content)
	entry := filepath.Join("programs", name+"-"+hex.EncodeToString(sum[:12]))
	return l.cache.entry(ctx, entry, func(path string) error { return os.Rename(built, path) })
}

// GoBuild builds a package of this module as a static program for guests. It works from anywhere inside the module, or
// where the module's source lies at the place it was compiled from. The tag is that of make build: it is the same program,
// and nothing is compiled twice.
func GoBuild(ctx context.Context, pkg, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", output, pkg)
	cmd.Dir = sourceDir()
	// GOFLAGS may ask for -race or -cover, which a static program in a bare guest cannot have.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", pkg, err, out)
	}
	return nil
}

// sourceDir is the folder of this file, or "" (the working folder) where the compiler was told to forget it.
func sourceDir() string {
	_, file, _, ok := runtime.Caller(0)
	if dir := filepath.Dir(file); ok && filepath.IsAbs(dir) && exists(dir) {
		return dir
	}
	return ""
}
