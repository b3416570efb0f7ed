// Package captures holds the kernel state of real nodes, as the native tools printed it, for tests on a clean clone.
//
// Each capture is a folder of files named after the tool that wrote them (iptables-nft-save.txt, ipset-save.txt,
// ipvsadm-save.txt, metrics.txt, ...). A file that would be empty is missing. owners.txt is the exception: it was written
// by hand and says whose each object of the capture is.
package captures

import (
	"embed"
	"errors"
	"io/fs"
	"path"
)

const (
	root         = "testdata"
	recordedRoot = "recorded"
)

// FS holds the captures under testdata/NAME/FILE.
//
//go:embed testdata
var FS embed.FS

// recorded holds those that the lab took of its own nodes under recorded/NAME/FILE.
//
//go:embed recorded
var recorded embed.FS

// Names returns the names of the captures with an owners.txt, sorted.
func Names() []string { return folders(FS, root) }

// Recorded returns the names of the captures that the lab took of its own nodes, sorted: as VERSION-BACKEND-STATE, of
// both versions of kube-proxy, both backends of iptables, and strictARP on and off. They have no owners.txt, and in
// addition restore-order.txt, config.yaml, kube-proxy.log (without the list of flags) and the legacy tables; metrics.txt
// holds kube-proxy's own without buckets. See make record.
func Recorded() []string { return folders(recorded, recordedRoot) }

func folders(from embed.FS, root string) []string {
	entries, err := fs.ReadDir(from, root)
	if err != nil {
		panic("captures: the embedded folder is gone: " + err.Error())
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// Read returns a file of a capture of either kind. The error is fs.ErrNotExist where the file would have been empty.
func Read(name, file string) ([]byte, error) {
	content, err := FS.ReadFile(path.Join(root, name, file))
	if errors.Is(err, fs.ErrNotExist) {
		return recorded.ReadFile(path.Join(recordedRoot, name, file))
	}
	return content, err
}
