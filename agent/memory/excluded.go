package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// ExcludeCIDRs returns ipvs.excludeCIDRs as an agent that keeps a File in stateDir last saw it: none where no agent does, or
// none was seen. It may be asked while that agent lives, and makes and changes nothing. Of which node the memory is does not
// matter: what is excluded is kept, and a name given by hand may differ from the agent's.
//
// It is an error that a memory is there and cannot be understood: what it says of virtual servers is not known then.
func ExcludeCIDRs(stateDir string) ([]string, error) {
	path := filepath.Join(stateDir, fileName)
	text, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recall ipvs.excludeCIDRs: %w", err)
	}
	told, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("recall ipvs.excludeCIDRs from %s: %w", path, err)
	}
	return told.ExcludeCIDRs, nil
}
