package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/lab"
)

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		argv    []string
		kernels int
		want    time.Duration
	}{
		{[]string{"x.test", "-test.timeout=10m0s"}, 1, 15 * time.Minute},
		{[]string{"x.test", "-test.timeout=10m0s"}, 3, 45 * time.Minute},
		{[]string{"x.test", "-test.timeout=0s"}, 1, time.Hour},
		{[]string{"x.test"}, 2, 2 * time.Hour},
		{[]string{"x.test", "-test.timeout=soon"}, 1, time.Hour},
	} {
		if got := limit(c.argv, c.kernels); got != c.want {
			t.Errorf("%v on %d: %s, want %s", c.argv, c.kernels, got, c.want)
		}
	}
}

func TestGuestArguments(t *testing.T) {
	got := guestArguments([]string{
		"-test.testlogfile=/tmp/x", "-test.paniconexit0", "-test.coverprofile=/c", "--test.gocoverdir=/d", "-test.timeout=1m0s",
		"-test.v=true", "-update", "word",
	})
	if diff := cmp.Diff([]string{"-test.paniconexit0", "-test.timeout=1m0s", "-test.v=true", "-update", "word"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestGuestEnvironment(t *testing.T) {
	got := guestEnvironment([]string{"HOME=/root", "SECRET=x", "OFFRAMP_X=1", "GODEBUG=a=1", "OFFRAMP_IN_GUEST=0"})
	want := []string{"OFFRAMP_X=1", "GODEBUG=a=1", "OFFRAMP_IN_GUEST=0", "OFFRAMP_REQUIRE_KERNEL=1", "OFFRAMP_IN_GUEST=1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTestdata(t *testing.T) {
	here := t.TempDir()
	if files, err := testdata(here, "/test/pkg"); len(files) > 0 || err != nil {
		t.Errorf("%v (%v) without testdata", files, err)
	}
	deep := filepath.Join(here, "testdata", "a", "b")
	if err := os.MkdirAll(filepath.Dir(deep), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(deep, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := testdata(here, "/test/pkg")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]lab.File{{Path: "/test/pkg/testdata/a/b", Host: deep}}, files); diff != "" {
		t.Error(diff)
	}
}
