package deploycheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// programsVariable tells where TestMain built the programs.
const programsVariable = "OFFRAMP_DEPLOYCHECK_PROGRAMS"

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

// withPrograms builds both programs and runs the tests.
func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "offramp-deploycheck-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = os.Setenv(programsVariable, dir)
	}
	if err == nil {
		build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", dir, "./agent", "./aggregator")
		build.Dir, build.Env, build.Stderr = "../..", append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = build.Run()
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "building the programs:", err)
		return 1
	}
	return m.Run()
}

func program(name string) string { return filepath.Join(os.Getenv(programsVariable), name) }

// flagsOf are the flags of a program's run, as its help lists them.
func flagsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), program(name), "run", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllSubmatch(help, -1) {
		flags[string(found[1])] = true
	}
	if len(flags) < 10 {
		t.Fatalf("the help of %s lists %v", name, flags)
	}
	return flags
}
