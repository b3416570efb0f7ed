package collect

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// maxSearched bounds a file that is searched line by line, in bytes: rules saved on a node with 10,000 Services take some 20 MiB.
const maxSearched = 64 << 20

// searcher looks for something in files of the host's, keeps what it found, and notes what it could not look at.
type searcher struct {
	tree       *hostTree
	cache      *fileCache
	unreadable []string
}

// lines hands each line of a file to visit, which returns what it found in it. found is false where the file is certainly not
// there; what could not be read is noted. what names the search, since one file can be searched for several things.
func (s *searcher) lines(what, name string, visit func(line string) []string) (result []string, found bool, err error) {
	file, err := s.tree.openRegular(name)
	if err != nil {
		found, err = s.tree.missing(name, err)
		if errors.Is(err, errNotInSight) {
			s.note("/" + s.tree.gap(name) + ": " + errNotInSight.Error())
			return nil, false, nil
		}
		return nil, found, err
	}
	defer func() { _ = file.Close() }()
	at, err := stampOf(file)
	if err != nil {
		return nil, true, s.tree.describe(name, err)
	}
	if known, ok := s.cache.get(what+" "+name, at); ok {
		return known, true, nil
	}
	result, err = searchLines(file, visit)
	if err != nil {
		return nil, true, s.tree.describe(name, err)
	}
	s.cache.put(what+" "+name, at, result)
	return result, true, nil
}

// names lists a folder; what is not in sight or cannot be read is noted.
func (s *searcher) names(folder string) []string {
	names, _, err := s.tree.list(folder)
	switch {
	case errors.Is(err, errNotInSight):
		s.note("/" + s.tree.gap(folder) + ": " + errNotInSight.Error())
	case err != nil && !errors.Is(err, unix.ENOTDIR):
		s.note(err.Error())
	}
	return names
}

// isFile reports whether there is a file, also behind links.
func (s *searcher) isFile(name string) bool {
	handle, err := s.tree.open(name, unix.O_PATH)
	if err == nil {
		_ = handle.Close()
	}
	return err == nil
}

func (s *searcher) note(place string) { s.unreadable = append(s.unreadable, clean(place)) }

// searchLines reads lines of any length; one that is longer than the buffer is cut into several.
func searchLines(file io.Reader, visit func(line string) []string) ([]string, error) {
	limited := &io.LimitedReader{R: file, N: maxSearched + 1}
	reader := bufio.NewReaderSize(limited, 1<<16)
	var result []string
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 && len(result) < maxListed {
			result = append(result, visit(string(line))...)
		}
		switch {
		case limited.N <= 0:
			return nil, errTooBig
		case errors.Is(err, io.EOF):
			return result, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func stampOf(file *os.File) (stamp, error) {
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return stamp{}, err
	}
	return stamp{uint64(status.Dev), status.Ino, status.Size, status.Ctim}, nil //nolint:unconvert // 32 bits on some machines
}

// gap returns the topmost part of a path that is not there: what would have to be mounted.
func (t *hostTree) gap(name string) string {
	for name = path.Clean(name); path.Dir(name) != "." && path.Dir(name) != "/"; name = path.Dir(name) {
		if handle, err := t.open(path.Dir(name), unix.O_PATH); err == nil {
			_ = handle.Close()
			break
		}
	}
	return name
}
