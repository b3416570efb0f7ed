package main

import (
	"io"
	"log/slog"
)

// newLog logs as text, or as JSON for format "json". An unknown level logs as info does; flags allow for none.
func newLog(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		least = slog.LevelInfo
	}
	settings := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, settings))
	}
	return slog.New(slog.NewTextHandler(w, settings))
}
