package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

type server struct {
	name    string
	handler http.Handler
}

// serveAll serves until ctx ends. Every address has to be free.
func serveAll(ctx context.Context, servers map[string]server) error {
	group, ctx := errgroup.WithContext(ctx)
	for address, s := range servers {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listening for %s: %w", s.name, err)
		}
		h := &http.Server{Handler: marked(s.handler), ReadHeaderTimeout: 5 * time.Second}
		group.Go(func() error {
			if err := h.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving %s: %w", s.name, err)
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			return h.Close()
		})
	}
	return group.Wait()
}

// marked says in every answer who gives it.
func marked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "offramp stand-in for kube-proxy")
		next.ServeHTTP(w, r)
	})
}

func metricsHandler(r recording, now func() time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, r.mode)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
		_, _ = io.WriteString(w, r.metricsAt(now()))
	})
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, configuration(r.mode))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}

func healthHandler(r recording, now func() time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		if !r.health.Healthy {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		answer(w, status, r.healthAt(now()))
	})
	return mux
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}
