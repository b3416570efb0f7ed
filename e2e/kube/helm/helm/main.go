// Program helm is the real one, built from its own module.
package main

import (
	"errors"
	"log/slog"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
)

func main() {
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		slog.Error("starting helm", "error", err)
		os.Exit(1)
	}
	if err := root.Execute(); err != nil {
		failed, ok := errors.AsType[cmd.CommandError](err)
		if ok {
			os.Exit(failed.ExitCode)
		}
		os.Exit(1)
	}
}
