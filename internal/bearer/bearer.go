// Package bearer sends a token that lies in a file with every gRPC call, as somebody keeps renewing it there.
package bearer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// maxToken bounds a token, in bytes; the aggregator takes headers of 16 KiB.
const maxToken = 12 << 10

// File is a file with one token. It implements gRPC's credentials of a call, and refuses to send over anything but TLS.
type File struct {
	path string

	mu    sync.Mutex
	seen  stamp
	token string
}

var _ credentials.PerRPCCredentials = (*File)(nil)

// stamp tells a renewed file from the one before: also of a symbolic link's new target, as kubelet makes them.
type stamp struct {
	modified time.Time
	size     int64
}

// New names the file. It need not be there yet.
func New(path string) *File { return &File{path: path} }

// Found names the file if it is there, and returns nil if it is not.
func Found(path string) *File {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return New(path)
}

// GetRequestMetadata reads the file if it has changed.
func (f *File) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := f.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity is always true: whoever reads the token is its holder.
func (*File) RequireTransportSecurity() bool { return true }

func (f *File) read() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("look for the token: %w", err)
	}
	now := stamp{modified: info.ModTime(), size: info.Size()}
	if now == f.seen {
		return f.token, nil
	}
	content, err := os.ReadFile(f.path)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if err := check(token); err != nil {
		return "", fmt.Errorf("read the token in %s: %w", f.path, err)
	}
	f.seen, f.token = now, token
	return token, nil
}

// check refuses what cannot be a token, before it travels in a header. It does not quote it.
func check(token string) error {
	switch {
	case token == "":
		return errors.New("the file is empty")
	case len(token) > maxToken:
		return fmt.Errorf("%d bytes are no token", len(token))
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("there is more than one word in it")
	default:
		return nil
	}
}
