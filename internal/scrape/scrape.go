// Package scrape serves metrics over HTTP until its caller stops.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout = 5 * time.Second
	// stopTimeout is how long an answer that is being written may take once ctx has ended.
	stopTimeout = 2 * time.Second
)

// Serve answers GET /metrics with handler on the listener until ctx ends, and closes it.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: 2 * headerTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving metrics: %w", err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(limited)
	if failure := <-ended; !errors.Is(failure, http.ErrServerClosed) {
		err = errors.Join(err, failure)
	}
	return err
}
