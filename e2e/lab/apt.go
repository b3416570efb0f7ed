package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// metaPackage depends on the newest cloud kernel of its suite.
const metaPackage = "linux-image-cloud-amd64"

// apt is apt-get with folders and sources of its own: the host's are neither used nor changed.
type apt struct {
	dir     string
	archive source
	suite   string
}

func (a apt) configuration() string { return filepath.Join(a.dir, "apt.conf") }

// prepare writes the configuration and fetches the suite's index.
func (a apt) prepare(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "cache/archives/partial", "state"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return fmt.Errorf("making apt's folders: %w", err)
		}
	}
	key := a.archive.signedBy
	if key == "" {
		key = "/usr/share/keyrings/debian-archive-keyring.gpg"
	}
	line := fmt.Sprintf("deb [arch=amd64 signed-by=%s] %s %s main\n", key, a.archive.uri, a.suite)
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(line), 0o644); err != nil {
		return fmt.Errorf("writing apt's sources: %w", err)
	}
	if err := a.configure(ctx); err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", "update"); err != nil {
		return fmt.Errorf("%w\nIs Debian %s still at %s? If it has moved to an archive of old releases, set %s to that one's address, as https://HOST/debian",
			err, a.suite, a.archive.uri, MirrorVariable)
	}
	return nil
}

// realPackage follows the meta package to the kernel's own.
func (a apt) realPackage(ctx context.Context) (string, error) {
	out, err := a.run(ctx, "apt-cache", "show", "--no-all-versions", metaPackage)
	if err != nil {
		return "", err
	}
	depends := regexp.MustCompile(`(?m)^Depends:.*?(linux-image-[0-9][^ ,]*-cloud-amd64)`).FindStringSubmatch(out)
	if depends == nil {
		return "", fmt.Errorf("%s of %s depends on no kernel", metaPackage, a.suite)
	}
	return depends[1], nil
}

func (a apt) run(ctx context.Context, program string, args ...string) (string, error) {
	path, err := lookProgram(program)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = a.dir, append(os.Environ(), "LC_ALL=C.UTF-8", "APT_CONFIG="+a.configuration())
	cmd.WaitDelay = time.Second
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// configure writes a configuration that has of the host's only how to reach an archive (proxies, certificates): its
// sources, its folders and its hooks are left alone. It runs as root since the cache folder need not be open to apt's
// own user.
func (a apt) configure(ctx context.Context) error {
	host, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return fmt.Errorf("asking apt for its configuration: %w", err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(host)) {
		if strings.HasPrefix(line, "Acquire::") && !strings.HasPrefix(line, "Acquire::IndexTargets") {
			text.WriteString(line)
		}
	}
	for _, setting := range []string{
		`Dir::Etc "` + a.dir + `"`, `Dir::Etc::Parts "/dev/null"`, `Dir::Etc::Main "/dev/null"`,
		`Dir::Etc::SourceList "sources.list"`, `Dir::Etc::SourceParts "/dev/null"`, `Dir::Etc::PreferencesParts "/dev/null"`,
		`Dir::State "` + a.dir + `/state"`, `Dir::State::Lists "` + a.dir + `/lists"`, `Dir::Cache "` + a.dir + `/cache"`,
		`APT::Architecture "amd64"`, `APT::Sandbox::User "root"`, `APT::Update::Error-Mode "any"`,
		`Acquire::Languages "none"`, `Acquire::Retries "3"`,
	} {
		text.WriteString(setting + ";\n")
	}
	if err := os.WriteFile(a.configuration(), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("writing apt's configuration: %w", err)
	}
	return nil
}
