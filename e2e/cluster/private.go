package cluster

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// privateDir is where a program finds the files that it was given. It exists for that program alone and in memory.
const privateDir = "/mnt"

// inPrivate makes a command that runs argv in a mount namespace of its own, with files in privateDir. They come as the
// command's input, so that none ever lies on a disk where a killed test would leave it.
func inPrivate(files map[string]string, argv ...string) (command []string, stdin []byte, err error) {
	const script = `mount -t tmpfs -o mode=0700 tmpfs "$0" && cd "$0" && tar -xf - && exec "$@" </dev/null`
	stdin, err = tarOf(files)
	return append([]string{"unshare", "-m", "sh", "-c", script, privateDir}, argv...), stdin, err
}

// without makes a command in which names stand for a program that fails. It is for inPrivate, where it changes nobody
// else's files.
func without(names, argv []string) []string {
	if len(names) == 0 {
		return argv
	}
	// A link, as of Debian's alternatives, is broken where it leads to. The shell of guests has its own mind about names.
	const script = `printf '#!/bin/sh\nexit 1\n' >broken && chmod 0755 broken
for name in $0; do for dir in /usr/local/sbin /usr/sbin /usr/bin /sbin /bin; do
	[ ! -e $dir/$name ] || mount --bind broken $dir/$name || exit
done; done
exec "$@"`
	return append([]string{"sh", "-c", script, strings.Join(names, " ")}, argv...)
}

// emptied makes a command for which folders are empty. It is for inPrivate, too.
func emptied(folders, argv []string) []string {
	if len(folders) == 0 {
		return argv
	}
	const script = `for dir in $0; do mount -t tmpfs tmpfs $dir || exit; done
exec "$@"`
	return append([]string{"sh", "-c", script, strings.Join(folders, " ")}, argv...)
}

func tarOf(files map[string]string) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name]))}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing files: %w", err)
	}
	return packed.Bytes(), nil
}
