// Program build builds the images of agent and aggregator where no base image can be pulled, and writes them to files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"offramp.dev/offramp/e2e/images"
)

func main() {
	var options images.Options
	output := flag.String("o", "bin/images", "the folder for the files")
	flag.StringVar(&options.Registry, "registry", "ghcr.io/offramp-dev", "the first part of the images' names")
	flag.StringVar(&options.Tag, "tag", "dev", "the last part of the images' names")
	flag.StringVar(&options.Platform, "platform", "", "what the images are for, as linux/arm64; empty is this host's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *output, options)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make images-tar:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, output string, options images.Options) (err error) {
	options.Log = os.Stderr
	data, err := images.DataFolder()
	if err != nil {
		return err
	}
	daemon, err := images.Start(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Stop()) }()
	if err := images.Build(ctx, daemon, options); err != nil {
		return err
	}
	for _, image := range []string{images.Agent, images.Aggregator} {
		path := filepath.Join(output, image+".tar")
		if err := daemon.Save(ctx, options.Name(image), path); err != nil {
			return err
		}
		fmt.Println(path, options.Name(image))
	}
	return nil
}
