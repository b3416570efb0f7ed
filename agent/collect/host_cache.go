package collect

import (
	"sync"

	"golang.org/x/sys/unix"
)

// maxCached bounds how many files a fileCache remembers; beyond it starts anew.
const maxCached = 512

// stamp tells whether a file is still the one that was read.
type stamp struct {
	device, inode uint64
	size          int64
	changed       unix.Timespec
}

// fileCache keeps what was found in files of the host's that hardly ever change and take long to read (the list of packages,
// of modules, saved rules). Safe for use by several goroutines.
type fileCache struct {
	mu    sync.Mutex
	files map[string]cachedFile
}

type cachedFile struct {
	stamp stamp
	found []string
}

func (c *fileCache) get(key string, at stamp) ([]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, known := c.files[key]
	return file.found, known && file.stamp == at
}

func (c *fileCache) put(key string, at stamp, found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil || len(c.files) >= maxCached {
		c.files = map[string]cachedFile{}
	}
	c.files[key] = cachedFile{at, found}
}
