package collect

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSearched bounds a file that is searched line by line, in bytes: rules saved on a node with 10,000 Services take some 20 MiB.
const maxSearched = 64 << 20

// searcher looks for something in files of the host's, keeps what it found, and notes what it could not look at.
type searcher struct {
	tree       *hostTree
	cache      *fileCache
	unreadable []string
	block      []byte // made for the first file
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
	if s.block == nil {
		s.block = make([]byte, searchBlock)
	}
	result, err = searchLines(file, s.block, visit)
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

// searchBlock is how much of a file is searched at once, in bytes.
const searchBlock = 1 << 16

// searchLines reads lines of any length; one that is longer than the block is cut into several. What visit returns may be a
// part of the line. block is what the file is read into.
func searchLines(file io.Reader, block []byte, visit func(line string) []string) ([]string, error) {
	var result []string
	held := 0
	for read := 0; ; {
		count, err := io.ReadFull(file, block[held:])
		read += count
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case read > maxSearched:
			return nil, errTooBig
		case err != nil && !ended:
			return nil, err
		}
		held += count
		whole := bytes.LastIndexByte(block[:held], '\n') + 1
		if whole == 0 || ended {
			whole = held
		}
		result = searchText(result, string(block[:whole]), visit)
		if ended {
			return result, nil
		}
		held = copy(block, block[whole:held])
	}
}

// searchText visits the lines of a block, which is one string for all of them: what is found is cloned out of it.
func searchText(result []string, text string, visit func(line string) []string) []string {
	for line := range strings.Lines(text) {
		if len(result) >= maxListed {
			break
		}
		for _, found := range visit(line) {
			result = append(result, strings.Clone(found))
		}
	}
	return result
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
