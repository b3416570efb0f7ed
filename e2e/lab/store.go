package lab

import "context"

// Cached returns the path of the file or folder called name in the lab's cache folder, and has it made at a temporary
// path when it is not there. It appears whole or not at all; whoever comes second waits for the first. name is relative
// and changes when its content should.
func Cached(ctx context.Context, name string, build func(path string) error) (string, error) {
	store, err := openCache("")
	if err != nil {
		return "", err
	}
	return store.entry(ctx, name, build)
}
