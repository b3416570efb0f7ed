package main

import (
	"fmt"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// ofBinary lists the modules of a Go program. The list has neither a number nor a time of its own: the same program gives the same one.
func ofBinary(path, version string) (*cdx.BOM, error) {
	options := []bin.Option{bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.Nop())}
	if version != "" {
		options = append(options, bin.WithVersionOverride(version))
	}
	generator, err := bin.NewGenerator(path, options...)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	bom, err := generator.Generate()
	if err != nil {
		return nil, fmt.Errorf("listing the program's modules: %w", err)
	}
	bom.SerialNumber = ""
	if bom.Metadata != nil {
		bom.Metadata.Timestamp = ""
	}
	return bom, nil
}
