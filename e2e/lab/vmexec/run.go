package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/internal/nstest"
)

// guestFolder is where tests run in a guest.
const guestFolder = "/test"

// runOne boots a machine, runs the test in it and returns its exit status.
func runOne(ctx context.Context, l *lab.Lab, vm lab.VM, argv []string, out io.Writer) (code int, err error) {
	here, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("finding the package's folder: %w", err)
	}
	folder := path.Join(guestFolder, filepath.Base(here))
	binary := path.Join(folder, filepath.Base(argv[0]))
	vm.Files, err = testdata(here, folder)
	if err != nil {
		return 0, err
	}
	vm.Files = append(vm.Files, lab.File{Path: binary, Host: argv[0], Mode: 0o755})
	guest, err := l.Boot(ctx, vm)
	if err != nil {
		return 0, err
	}
	defer func() { _ = guest.Close() }()
	return guest.Exec(ctx, lab.Command{
		Argv: append([]string{binary}, guestArguments(argv[1:])...), Dir: folder, Env: guestEnvironment(os.Environ()),
		Stdout: out, Stderr: out,
	})
}

// testdata lists the package's test files for the guest.
func testdata(here, folder string) ([]lab.File, error) {
	var files []lab.File
	root := filepath.Join(here, "testdata")
	if _, err := os.Stat(root); err != nil {
		return nil, nil //nolint:nilerr // most packages have none
	}
	err := filepath.WalkDir(root, func(host string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(here, host)
		if err != nil {
			return err
		}
		files = append(files, lab.File{Path: path.Join(folder, filepath.ToSlash(name)), Host: host})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing testdata: %w", err)
	}
	return files, nil
}

// guestArguments drops the flags that name files of the host.
func guestArguments(args []string) []string {
	var kept []string
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch name {
		case "test.testlogfile", "test.coverprofile", "test.gocoverdir", "test.outputdir", "test.cpuprofile",
			"test.memprofile", "test.blockprofile", "test.mutexprofile", "test.trace":
		default:
			kept = append(kept, arg)
		}
	}
	return kept
}

// guestEnvironment passes on what is the project's or Go's run-time's own.
func guestEnvironment(host []string) []string {
	var kept []string
	for _, variable := range host {
		if strings.HasPrefix(variable, "OFFRAMP_") || strings.HasPrefix(variable, "GODEBUG=") || strings.HasPrefix(variable, "GOTRACEBACK=") {
			kept = append(kept, variable)
		}
	}
	return append(kept, nstest.RequireKernel+"=1", nstest.InGuest+"=1")
}
