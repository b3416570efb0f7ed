package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"offramp.dev/offramp/e2e/lab/wire"
)

// Put writes a file in the guest, making its folder.
func (g *Guest) Put(ctx context.Context, path string, content io.Reader, mode fs.FileMode) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	call, err := g.call(ctx, wire.Request{Put: &wire.Put{Path: path, Mode: mode}})
	if err != nil {
		return err
	}
	// An error of the guest's own, as a full file system, arrives as its reply and says more than a broken connection.
	sendErr := wire.SendChunks(call.enc, content)
	if _, err := call.finish(nil, nil); err != nil {
		return err
	}
	return sendErr
}

// PutFile copies a file of the host into the guest, with its permissions.
func (g *Guest) PutFile(ctx context.Context, path, host string) error {
	file, err := os.Open(host)
	if err != nil {
		return fmt.Errorf("opening what goes to %s: %w", g.Name, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("looking at what goes to %s: %w", g.Name, err)
	}
	return g.Put(ctx, path, file, info.Mode().Perm())
}

// Get reads a file of the guest.
func (g *Guest) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	call, err := g.call(ctx, wire.Request{Get: &wire.Get{Path: path}})
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	_, err = call.finish(&content, nil)
	return content.Bytes(), err
}

// account adds nfnetlink accounting objects.
func (g *Guest) account(ctx context.Context, names []string) error {
	call, err := g.call(ctx, wire.Request{Account: names})
	if err != nil {
		return err
	}
	_, err = call.finish(nil, nil)
	return err
}
