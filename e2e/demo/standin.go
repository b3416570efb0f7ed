package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab"
)

// servedFiles are what the stand-in for kube-proxy serves.
func servedFiles() []string {
	return []string{"proxyMode.txt", "metrics.txt", "healthz.json", "cmdline.txt"}
}

// startStandIn starts the stand-in for kube-proxy under the command line that the captured kube-proxy had.
func startStandIn(ctx context.Context, guest *lab.Guest, capture string) (*lab.Process, error) {
	for _, name := range servedFiles() {
		content, err := captures.Read(capture, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the capture: %w", err)
		}
		if err := guest.Put(ctx, path.Join(captureFiles, name), bytes.NewReader(content), 0o644); err != nil {
			return nil, err
		}
	}
	line, err := captures.Read(capture, "cmdline.txt")
	if err != nil {
		return nil, fmt.Errorf("reading the capture's command line: %w", err)
	}
	argv := append([]string{standInPath}, strings.Fields(string(line))[1:]...)
	return guest.Start(ctx, lab.Command{Argv: argv, Env: []string{"OFFRAMP_STANDIN_CAPTURE=" + captureFiles}})
}
