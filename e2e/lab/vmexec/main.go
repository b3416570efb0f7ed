// Command vmexec runs a test binary in a virtual machine of the lab, for go test's -exec:
//
//	go test -exec 'go run offramp.dev/offramp/e2e/lab/vmexec -kernel 6.1' ./agent/collect/...
//
// The test runs as root with OFFRAMP_REQUIRE_KERNEL=1 and OFFRAMP_IN_GUEST=1, in a folder named like its package's that
// holds the package's testdata. With several kernels, as in -kernel 5.10,6.12, it runs on each, each in a fresh machine, as
// many at a time as -parallel says. Coverage and profiles are not brought back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

func main() {
	kernels := flag.String("kernel", "6.1", "kernel version, or several with commas between: "+strings.Join(lab.Kernels(), ","))
	memory := flag.Int("memory", 0, "memory of a machine in MiB (0: the lab's default)")
	parallel := flag.Int("parallel", 2, "machines at a time; one keeps a core busy")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: vmexec [-kernel LIST] [-memory MIB] [-parallel N] TEST-BINARY [ARGUMENT ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := runAll(ctx, strings.Split(*kernels, ","), *memory, max(1, *parallel), flag.Args())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "vmexec: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

// runAll runs the test on each kernel and returns the first exit status that is not 0.
func runAll(ctx context.Context, kernels []string, memory, parallel int, argv []string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit(argv, len(kernels)))
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Log: os.Stderr})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return inOrder(os.Stdout, kernels, parallel, func(kernel string, out io.Writer) (int, error) {
		return runOne(ctx, l, lab.VM{Name: "vmexec", Kernel: strings.TrimSpace(kernel), Memory: memory}, argv, out)
	})
}

const (
	// setUpTime is granted beyond the test's own time limit, per kernel.
	setUpTime = 5 * time.Minute
	// longest is the limit for tests without one.
	longest = time.Hour
)

// limit is when all has to be over.
func limit(argv []string, kernels int) time.Duration {
	for _, arg := range argv {
		if text, ok := strings.CutPrefix(arg, "-test.timeout="); ok {
			if each, err := time.ParseDuration(text); err == nil && each > 0 {
				return time.Duration(kernels) * (each + setUpTime)
			}
		}
	}
	return time.Duration(kernels) * longest
}
