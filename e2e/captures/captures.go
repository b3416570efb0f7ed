// Package captures holds the kernel state of real nodes, as the native tools printed it, for tests on a clean clone.
//
// Each capture is a folder of files named after the tool that wrote them (iptables-nft-save.txt, ipset-save.txt,
// ipvsadm-save.txt, metrics.txt, ...). A file that would be empty is missing. owners.txt is the exception: it was written
// by hand and says whose each object of the capture is.
package captures

import (
	"embed"
	"io/fs"
	"path"
)

const root = "testdata"

// FS holds the captures under testdata/NAME/FILE.
//
//go:embed testdata
var FS embed.FS

// Names returns the names of the captures, sorted.
func Names() []string {
	entries, err := fs.ReadDir(FS, root)
	if err != nil {
		panic("captures: the embedded folder is gone: " + err.Error())
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Read returns a file of a capture. The error is fs.ErrNotExist where the file would have been empty.
func Read(name, file string) ([]byte, error) {
	return FS.ReadFile(path.Join(root, name, file))
}
