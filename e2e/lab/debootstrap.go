package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Debootstrap makes the root of a small Debian of a suite in the folder dir, with more packages if asked for. It comes from
// the archive that the host itself uses. Needs root.
func Debootstrap(ctx context.Context, suite, dir string, packages ...string) error {
	archive, err := mirror("/etc/apt")
	if err != nil {
		return err
	}
	args := []string{"--variant=minbase"}
	if len(packages) > 0 {
		args = append(args, "--include="+strings.Join(packages, ","))
	}
	if archive.signedBy != "" {
		args = append(args, "--keyring="+archive.signedBy)
	}
	program, err := lookProgram("debootstrap")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append(args, suite, dir, archive.uri)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("debootstrap of %s: %w: %s", suite, err, lastOf(out, 2000))
	}
	return nil
}

// lastOf is the end of a long output, where the reason of a failure stands.
func lastOf(out []byte, size int) []byte { return out[max(len(out)-size, 0):] }
