package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, lines ...string) (*reader, string) {
	t.Helper()
	var shown bytes.Buffer
	r := newReader(&shown)
	if err := r.read(strings.NewReader(strings.Join(lines, "\n") + "\n")); err != nil {
		t.Fatal(err)
	}
	return r, shown.String()
}

func TestRunsAreRead(t *testing.T) {
	r, shown := read(t,
		`{"Action":"run","Package":"p","Test":"TestState09X"}`,
		`{"Action":"output","Package":"p","Test":"TestState09X","Output":"quiet\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestState09X"}`,
		`{"Action":"output","Package":"q","Output":"# kernel 5.10\n"}`,
		`{"Action":"pass","Package":"q","Test":"TestState09X/sub"}`,
		`{"Action":"skip","Package":"q","Test":"TestState09X"}`,
		`{"Action":"output","Package":"q","Output":"# kernel 6.12 (3m2s)\n"}`,
		`{"Action":"output","Package":"q","Test":"TestState11Y","Output":"loud\n"}`,
		`{"Action":"fail","Package":"q","Test":"TestState11Y"}`,
		`{"Action":"pass","Package":"q","Test":"TestStateless"}`,
		`lab: up`,
	)
	want := []run{{9, "TestState09X", "host", "pass"}, {9, "TestState09X", "5.10", "skip"}, {11, "TestState11Y", "6.12", "fail"}}
	if diff := cmp.Diff(want, r.runs, cmp.AllowUnexported(run{})); diff != "" {
		t.Error(diff)
	}
	if want := "# kernel 5.10\n# kernel 6.12 (3m2s)\nloud\nlab: up\n"; shown != want {
		t.Errorf("shown %q, want %q", shown, want)
	}
}

// all is a run of every state on these kernels.
func all(kernels ...string) []run {
	var runs []run
	for _, s := range states() {
		for _, kernel := range kernels {
			runs = append(runs, run{s.number, fmt.Sprintf("TestState%02dX", s.number), kernel, "pass"})
		}
	}
	return runs
}

func TestCheck(t *testing.T) {
	kernels := []string{"5.10", "6.12"}
	without := func(number int, kernel string) []run {
		var kept []run
		for _, r := range all(append(kernels, "host")...) {
			if r.number != number || r.kernel != kernel {
				kept = append(kept, r)
			}
		}
		return kept
	}
	with := func(number int, result string) []run {
		return append(all(kernels...), run{number, "TestStateMore", "6.12", result})
	}
	for name, tt := range map[string]struct {
		runs []run
		want string
	}{
		"all":                      {all(kernels...), ""},
		"one missing on a kernel":  {without(9, "5.10"), "state 09 (sysctls that stay) on kernel 5.10: missing"},
		"an extra one missing":     {without(1, "5.10"), ""},
		"one failed as well":       {with(11, "fail"), "state 11 (a listener of the host on a VIP) on kernel 6.12: TestStateMore fail"},
		"one skipped as well":      {with(11, "skip"), "state 11 (a listener of the host on a VIP) on kernel 6.12: TestStateMore skip"},
		"an extra one that failed": {with(1, "fail"), "state 01 (mode empty in the configuration) on kernel 6.12: TestStateMore fail"},
	} {
		var table bytes.Buffer
		if got := strings.Join(check(&table, tt.runs, kernels), "\n"); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if !strings.Contains(table.String(), "TestState55X") {
			t.Errorf("%s: the table lacks a state:\n%s", name, table.String())
		}
	}
}

func TestRequiredStatesAreThoseOfTheIssue(t *testing.T) {
	var got []int
	for _, s := range states() {
		if s.required {
			got = append(got, s.number)
		}
	}
	want := []int{9, 11, 12, 14, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 33, 34, 35, 36, 38, 39, 40, 41, 42, 44, 46, 49, 50, 51, 54, 55}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRecordAndCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs", "a.json")
	printing := `echo '{"Action":"pass","Package":"p","Test":"TestState99New"}'; exit 3`
	var out bytes.Buffer
	code, err := do(t.Context(), []string{"record", "-o", file, "sh", "-c", printing}, &out)
	if code != 3 || err != nil {
		t.Fatalf("exit code %d (%v), want the command's", code, err)
	}
	code, err = do(t.Context(), []string{"check", "-kernels", "host", file}, &out)
	if code != 1 || err == nil || !strings.Contains(err.Error(), "TestState99New is of a state that is not in the list") {
		t.Errorf("exit code %d: %v", code, err)
	}
	if err := save(file, all("host")); err != nil {
		t.Fatal(err)
	}
	if code, err = do(t.Context(), []string{"check", "-kernels", "host", file}, &out); code != 0 || err != nil {
		t.Errorf("exit code %d: %v", code, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if code, err = do(t.Context(), []string{"check", file}, &out); code != 1 || err == nil {
		t.Errorf("exit code %d without a file: %v", code, err)
	}
	for _, args := range [][]string{nil, {"check"}, {"record", "x"}, {"sing", "x"}} {
		if code, err := do(t.Context(), args, &out); code != 2 || err == nil {
			t.Errorf("%q: exit code %d: %v", args, code, err)
		}
	}
}
