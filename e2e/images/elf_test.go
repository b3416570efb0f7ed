package images

import (
	"bytes"
	"debug/elf"
	"path"
	"slices"
	"testing"
)

// Every program and library is of the image's own architecture, and every library that one needs is there. Offramp's own need none.
func TestImagesHoldEveryLibrary(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, name := range []string{Agent, Aggregator} {
		image := open(t, name)
		var libraries []string
		for file := range image.Files {
			libraries = append(libraries, path.Base(file))
		}
		checked := 0
		for file, entry := range image.Files {
			if !bytes.HasPrefix(entry.Content, []byte(elf.ELFMAG)) {
				continue
			}
			checked++
			machine, needed := header(t, file, entry.Content)
			if machine != machines[image.Config.Architecture] {
				t.Errorf("%s: %s is for %s, in an image for %s", name, file, machine, image.Config.Architecture)
			}
			for _, library := range needed {
				if !slices.Contains(libraries, library) || path.Base(file) == name {
					t.Errorf("%s: %s needs %s", name, file, library)
				}
			}
		}
		if want := map[string]int{Agent: 100, Aggregator: 1}[name]; checked < want {
			t.Errorf("%s: only %d programs and libraries", name, checked)
		}
	}
}

func header(t *testing.T, name string, content []byte) (elf.Machine, []string) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	needed, err := file.ImportedLibraries()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return file.Machine, needed
}
