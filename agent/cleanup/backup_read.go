package cleanup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrBackup says that a backup is not there, not complete, or not what was written.
var ErrBackup = errors.New("not a whole backup")

// Backups lists the complete backups of a state folder, oldest first. One whose manifest cannot be read has only its ID.
func Backups(stateDir string) ([]*Manifest, error) {
	dir := filepath.Join(stateDir, backupFolder)
	ids, err := runsIn(dir, "")
	if err != nil {
		return nil, err
	}
	manifests := make([]*Manifest, 0, len(ids))
	for _, id := range ids {
		manifest, err := readManifest(dir, id)
		if err != nil {
			manifest = &Manifest{ID: id}
		}
		manifests = append(manifests, manifest)
	}
	return manifests, nil
}

func readManifest(dir, id string) (*Manifest, error) {
	if !isRunID(id) {
		return nil, fmt.Errorf("%q: %w", id, ErrBackup)
	}
	text, err := os.ReadFile(filepath.Join(dir, id, manifestFile)) //nolint:gosec // id is the name of a run
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", id, ErrBackup), err)
	}
	manifest := &Manifest{}
	if err := json.Unmarshal(text, manifest); err != nil {
		return nil, fmt.Errorf("%s: %w: its manifest: %w", id, ErrBackup, err)
	}
	if manifest.Version != manifestVersion || manifest.ID != id {
		return nil, fmt.Errorf("%s: %w: its manifest is of version %d and of %q", id, ErrBackup, manifest.Version, manifest.ID)
	}
	return manifest, nil
}

// readBackup reads a backup, and makes sure that every file of it is what was written.
func readBackup(stateDir, id string) (*Manifest, *saved, error) {
	dir := filepath.Join(stateDir, backupFolder)
	manifest, err := readManifest(dir, id)
	if err != nil {
		return nil, nil, err
	}
	objects := &saved{}
	for name, file := range manifest.Files {
		content, err := os.ReadFile(filepath.Join(dir, id, filepath.Base(name))) //nolint:gosec // a file of the backup's own folder
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", id, ErrBackup), err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != file.SHA256 {
			return nil, nil, fmt.Errorf("%s: %w: %s was changed", id, ErrBackup, name)
		}
		if name != objectsFile {
			continue
		}
		if err := json.Unmarshal(content, objects); err != nil {
			return nil, nil, fmt.Errorf("%s: %w: %w", id, ErrBackup, err)
		}
	}
	if _, found := manifest.Files[objectsFile]; !found {
		return nil, nil, fmt.Errorf("%s: %w: it has no %s", id, ErrBackup, objectsFile)
	}
	return manifest, objects, nil
}

// retention is how many backups and journals are kept, and for how long. The newest is always kept.
type retention struct {
	count int
	age   time.Duration
}

// prune removes old backups and journals, and backups that were never finished. Call it with the lock held.
func (r retention) prune(stateDir string, now time.Time) error {
	for _, kind := range []struct{ dir, suffix string }{
		{backupFolder, ""}, {journalFolder, journalSuffix},
	} {
		dir := filepath.Join(stateDir, kind.dir)
		ids, err := runsIn(dir, kind.suffix)
		if err != nil {
			return err
		}
		for i, id := range ids {
			newer := len(ids) - 1 - i
			if newer > 0 && (newer >= r.count || r.expired(id, now)) {
				if err := os.RemoveAll(filepath.Join(dir, id+kind.suffix)); err != nil {
					return fmt.Errorf("remove what is old from the state folder: %w", err)
				}
			}
		}
	}
	return prunePartial(filepath.Join(stateDir, backupFolder))
}

func (r retention) expired(id string, now time.Time) bool {
	made, err := time.Parse(runIDLayout, id[:len(runIDLayout)])
	return err == nil && now.Sub(made) > r.age
}

func prunePartial(dir string) error {
	ids, err := runsIn(dir, partialSuffix)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := os.RemoveAll(filepath.Join(dir, id+partialSuffix)); err != nil {
			return fmt.Errorf("remove an unfinished backup: %w", err)
		}
	}
	return nil
}
