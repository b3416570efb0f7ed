// Program sbom writes what a program or an image is made of, as CycloneDX JSON: the Go modules that the binary says it was built
// from, and the Debian packages that the image has files of.
//
//	sbom -o bin/sbom bin/kubectl-offramp bin/images/offramp-agent.tar
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	output := flag.String("o", "bin/sbom", "the folder for the lists")
	version := flag.String("version", "", "the version of what they are made of")
	flag.Parse()
	for _, subject := range flag.Args() {
		path, err := list(subject, *output, *version)
		if err != nil {
			fmt.Fprintln(os.Stderr, "make sbom:", err)
			os.Exit(1)
		}
		fmt.Println(path)
	}
}

// list writes the list of one program, or of one image that docker save wrote. It returns where.
func list(subject, output, version string) (string, error) {
	name := filepath.Base(subject)
	describe := ofBinary
	if image, ok := strings.CutSuffix(name, ".tar"); ok {
		name, describe = image+".image", ofImage
	}
	bom, err := describe(subject, version)
	if err != nil {
		return "", fmt.Errorf("%s: %w", subject, err)
	}
	if err := os.MkdirAll(output, 0o750); err != nil {
		return "", fmt.Errorf("making the folder of lists: %w", err)
	}
	path := filepath.Join(output, name+".cdx.json")
	file, err := os.Create(path) //nolint:gosec // in the folder that the caller names
	if err != nil {
		return "", fmt.Errorf("creating a list: %w", err)
	}
	err = cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return path, err
}
