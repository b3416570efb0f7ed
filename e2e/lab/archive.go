package lab

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// blockSize is what archives are filled up to: the kernel unpacks several that follow each other.
const blockSize = 512

// archive collects what a guest's file system is to hold and writes it as a cpio archive, as the kernel unpacks it.
// The later of two entries with one name counts.
type archive map[string]archived

// archived is one entry: a file of the host, a text, a symbolic link, or a folder.
type archived struct {
	mode   fs.FileMode
	host   string // path of a file to copy
	text   string // content, or the target of a symbolic link
	isLink bool
}

// file adds a copy of a host's file.
func (a archive) file(name, host string, mode fs.FileMode) {
	a[clean(name)] = archived{host: host, mode: mode}
}

func (a archive) text(name, text string) { a[clean(name)] = archived{text: text, mode: 0o644} }

func (a archive) link(name, target string) {
	a[clean(name)] = archived{text: target, isLink: true, mode: 0o777}
}

func (a archive) folder(name string) { a[clean(name)] = archived{mode: fs.ModeDir | 0o755} }

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// write writes the archive, with every folder before what is in it.
func (a archive) write(w io.Writer) error {
	a.addFolders()
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	sort.Strings(names)
	counted := &counter{w: w}
	out := cpio.NewWriter(counted)
	for _, name := range names {
		if err := writeEntry(out, name, a[name]); err != nil {
			return fmt.Errorf("archiving %s: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("ending an archive: %w", err)
	}
	_, err := w.Write(make([]byte, (blockSize-counted.n%blockSize)%blockSize))
	return err
}

func (a archive) addFolders() {
	for name := range a {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, there := a[dir]; !there {
				a.folder(dir)
			}
		}
	}
}

func writeEntry(out *cpio.Writer, name string, e archived) error {
	header := &cpio.Header{Name: name, Mode: cpio.FileMode(e.mode.Perm()), Size: int64(len(e.text)), Links: 1}
	switch {
	case e.host != "":
		header.Mode |= cpio.TypeReg
		return copyFile(out, header, e.host)
	case e.isLink:
		header.Mode |= cpio.TypeSymlink
	case e.mode.IsDir():
		header.Mode |= cpio.TypeDir
	default:
		header.Mode |= cpio.TypeReg
	}
	if err := out.WriteHeader(header); err != nil || e.text == "" {
		return err
	}
	_, err := io.WriteString(out, e.text)
	return err
}

func copyFile(out *cpio.Writer, header *cpio.Header, host string) error {
	file, err := os.Open(host)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
