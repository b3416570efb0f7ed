package lab

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// libraries finds what ELF files need to run, without running anything.
type libraries struct {
	dirs  []string
	found map[string]bool
}

func newLibraries() *libraries {
	dirs := append(loaderDirs("/etc/ld.so.conf", "/"), "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/lib", "/usr/lib")
	return &libraries{dirs: dirs, found: map[string]bool{}}
}

// closure returns the paths of the file's interpreter and of all libraries that it and they name, and of none twice over
// the life of l. A file that is not ELF needs nothing.
func (l *libraries) closure(file string) ([]string, error) {
	binary, err := elf.Open(file)
	if err != nil {
		var notELF *elf.FormatError
		if errors.As(err, &notELF) || errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	defer func() { _ = binary.Close() }()
	var all []string
	for _, path := range l.needs(file, binary) {
		if path.at == "" {
			return nil, fmt.Errorf("%s needs %s, which is in none of %s", file, path.name, strings.Join(l.dirs, ", "))
		}
		if l.found[path.at] {
			continue
		}
		l.found[path.at] = true
		below, err := l.closure(path.at)
		if err != nil {
			return nil, err
		}
		all = append(append(all, path.at), below...)
	}
	return all, nil
}

// need is a library by name and where it is; at is empty if nowhere.
type need struct{ name, at string }

func (l *libraries) needs(file string, binary *elf.File) []need {
	var all []need
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, p.Filesz)
			if _, err := p.ReadAt(text, 0); err == nil {
				interpreter := strings.TrimRight(string(text), "\x00")
				all = append(all, need{interpreter, interpreter})
			}
		}
	}
	dirs := append(ownDirs(file, binary), l.dirs...)
	names, _ := binary.ImportedLibraries()
	for _, name := range names {
		all = append(all, need{name, findIn(dirs, name)})
	}
	return all
}

// ownDirs are the folders that the file itself names.
func ownDirs(file string, binary *elf.File) []string {
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, _ := binary.DynString(tag)
		for _, value := range values {
			value = strings.ReplaceAll(value, "$ORIGIN", filepath.Dir(file))
			dirs = append(dirs, filepath.SplitList(value)...)
		}
	}
	return dirs
}

func findIn(dirs []string, name string) string {
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); exists(path) {
			return path
		}
	}
	return ""
}

// loaderDirs reads the loader's configuration with what it includes.
func loaderDirs(file, root string) []string {
	in, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = in.Close() }()
	var dirs []string
	for lines := bufio.NewScanner(in); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			included, _ := filepath.Glob(filepath.Join(root, fields[1]))
			for _, path := range included {
				dirs = append(dirs, loaderDirs(path, root)...)
			}
		case len(fields) == 1:
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}
