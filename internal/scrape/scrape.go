// Package scrape serves metrics and health over HTTP until its caller stops.
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

// Handlers are what is served. A path without its handler is not found.
type Handlers struct {
	// Metrics answers GET /metrics. Required.
	Metrics http.Handler
	// Live answers GET /healthz, whether the process works, and Ready GET /readyz, whether it is of use now: 200 for nil, 503 with the
	// error's text otherwise. They are asked for each request and must be quick.
	Live, Ready func() error
}

// Alive is a Live of a process that works as long as it answers.
func Alive() error { return nil }

// Serve answers on the listener until ctx ends, and closes it.
func Serve(ctx context.Context, listener net.Listener, handlers Handlers) error {
	server := &http.Server{Handler: handlers.mux(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: 2 * headerTimeout}
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

func (h Handlers) mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.Metrics)
	for path, check := range map[string]func() error{"GET /healthz": h.Live, "GET /readyz": h.Ready} {
		if check != nil {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { answer(w, check()) })
		}
	}
	return mux
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
