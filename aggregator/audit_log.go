package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"offramp.dev/offramp/aggregator/audit"
)

// openAudit opens what --audit-log names: a file that is appended to, "-" for standard output, or the log.
func openAudit(name string, stdout io.Writer, log *slog.Logger) (*audit.Log, func(), error) {
	switch name {
	case "":
		return audit.ToLog(log), func() {}, nil
	case "-":
		return audit.New(stdout, log), func() {}, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // whoever starts the aggregator names it
	if err != nil {
		return nil, nil, fmt.Errorf("open the audit log: %w", err)
	}
	done := func() {
		if err := file.Close(); err != nil {
			log.Error("the audit log cannot be closed", "error", err)
		}
	}
	return audit.New(file, log), done, nil
}
