package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// layout is part of every cached archive's name; a change to what archives hold needs a new one.
const layout = "2"

// base makes the part of the guests' file system that is the same for all: the host's native tools with their
// libraries. It is made anew when one of the host's files has changed.
func (l *Lab) base(ctx context.Context) (string, error) {
	began := time.Now()
	content, err := baseContent(ctx)
	if err != nil {
		return "", fmt.Errorf("collecting the guests' tools: %w", err)
	}
	name := filepath.Join("base", content.digest()+".cpio")
	made := false
	path, err := l.cache.entry(ctx, name, func(path string) error {
		made = true
		return writeArchive(path, content)
	})
	if err != nil {
		return "", fmt.Errorf("making the guests' file system: %w", err)
	}
	if made {
		l.logf(began, "made the guests' file system")
	}
	return path, nil
}

// digest names the content without reading it: by path, size and time of each file.
func (a archive) digest() string {
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	sort.Strings(names)
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, layout)
	for _, name := range names {
		e := a[name]
		_, _ = fmt.Fprintln(sum, name, e.mode, e.host, e.text)
		if info, err := os.Stat(e.host); e.host != "" && err == nil {
			_, _ = fmt.Fprintln(sum, info.Size(), info.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

func writeArchive(path string, content archive) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating an archive: %w", err)
	}
	if err := content.write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// baseContent lists the guests' file system without modules and init.
func baseContent(ctx context.Context) (archive, error) {
	a := archive{}
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "root", "var/lib", "etc"} {
		a.folder(dir)
	}
	for _, merged := range []string{"bin", "sbin", "lib", "lib64"} {
		a.link(merged, "usr/"+merged)
	}
	a.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	a.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
	a.text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
	t := tools{archive: a, libraries: newLibraries()}
	if err := t.addAll(); err != nil {
		return nil, err
	}
	return a, addApplets(ctx, a)
}
