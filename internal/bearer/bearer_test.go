package bearer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, content string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func (f *File) sends(t *testing.T, want string) {
	t.Helper()
	got, err := f.GetRequestMetadata(t.Context())
	if err != nil || got["authorization"] != want || len(got) != 1 {
		t.Errorf("got %v, %v; want %q", got, err, want)
	}
}

func (f *File) fails(t *testing.T, want string) {
	t.Helper()
	if got, err := f.GetRequestMetadata(t.Context()); err == nil || !strings.Contains(err.Error(), want) || got != nil {
		t.Errorf("got %v, %v; want an error with %q", got, err, want)
	}
}

func TestARotatedTokenIsSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	file := New(path)
	file.fails(t, path)
	now := time.Now()
	write(t, path, "aaa.bbb.ccc\n", now)
	file.sends(t, "Bearer aaa.bbb.ccc")
	write(t, path, "aaa.bbb.ddd\n", now.Add(time.Minute))
	file.sends(t, "Bearer aaa.bbb.ddd")
}

// kubelet makes a new folder and moves one symbolic link to it.
func TestARotatedLinkIsFollowed(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "token"), "token-"+name, time.Now().Add(time.Duration(i)*time.Second))
	}
	link := func(to string) {
		if err := os.Symlink(to, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("1")
	file := New(filepath.Join(dir, "..data", "token"))
	file.sends(t, "Bearer token-1")
	link("2")
	file.sends(t, "Bearer token-2")
}

// An unchanged file is not read again: its content, swapped under the same time and size, is not noticed.
func TestAnUnchangedFileIsNotReadAgain(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "token"), time.Now()
	file := New(path)
	write(t, path, "one", at)
	file.sends(t, "Bearer one")
	write(t, path, "two", at)
	file.sends(t, "Bearer one")
}

func TestNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{
		"": "empty", " \n": "empty", "a b": "more than one word", "a\nb": "more than one word", "a\x00b": "more than one word",
		"tök": "more than one word", strings.Repeat("x", maxToken+1): "no token",
	} {
		write(t, path, content, time.Now())
		New(path).fails(t, want)
	}
	// The error must not tell what is in the file.
	write(t, path, "secret secret", time.Now())
	if _, err := New(path).GetRequestMetadata(t.Context()); strings.Contains(err.Error(), "secret") {
		t.Errorf("the error quotes the token: %v", err)
	}
}

func TestFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if Found(path) != nil {
		t.Error("found what is not there")
	}
	write(t, path, "x", time.Now())
	Found(path).sends(t, "Bearer x")
	// What is there and cannot be looked at is no reason to go without a token.
	if Found(filepath.Join(path, "below-a-file")) == nil {
		t.Error("a path that cannot be looked at counts as nothing there")
	}
}

func TestOnlyOverTLS(t *testing.T) {
	if !New("x").RequireTransportSecurity() {
		t.Error("the token would be sent in the clear")
	}
}
