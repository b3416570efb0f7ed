package deploy

import (
	"os"
	"path/filepath"

	"offramp.dev/offramp/e2e/nodes"
	"offramp.dev/offramp/e2e/programs"
)

// imagesFolder names the folder of the archives of Offramp's own images, as make images-tar writes them. Without it the images
// are packed here from the programs alone, which is enough for all but iptables-legacy.
const imagesFolder = "OFFRAMP_IMAGES"

// images are the archives that the nodes get, since there is nothing that they could be pulled from.
func (s *stage) images() []string {
	s.Helper()
	if dir := os.Getenv(imagesFolder); dir != "" {
		found, err := filepath.Glob(filepath.Join(dir, "*.tar"))
		if err != nil || len(found) < 2 {
			s.Fatalf("%s has the images %v (%v)", dir, found, err)
		}
		return found
	}
	return s.packed()
}

func (s *stage) packed() []string {
	s.Helper()
	var archives []string
	for name, program := range map[string]string{"offramp-agent": programs.Agent(), "offramp-aggregator": programs.Aggregator()} {
		path := filepath.Join(s.dir, name+".tar")
		err := nodes.WriteImage(path, nodes.Image{
			Name:  "ghcr.io/offramp-dev/" + name + ":dev",
			Files: map[string]string{"/usr/bin/" + name: program}, Command: []string{"/usr/bin/" + name},
		})
		if err != nil {
			s.Fatal(err)
		}
		archives = append(archives, path)
	}
	return archives
}
