package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The files of an order: what was taken, how it ended (an encoded OrderResult), and whether an aggregator holds that.
const (
	folder         = "orders"
	takenSuffix    = ".json"
	resultSuffix   = ".result"
	heldSuffix     = ".acknowledged"
	unfinishedName = ".unfinished"
	lockName       = "lock"
)

// ErrTwoAgents says that another agent takes orders with the same state folder.
var ErrTwoAgents = errors.New("another agent takes orders with this state folder")

// disk keeps orders in a folder. What it says to have written is there after a power cut.
type disk struct {
	dir string
	// lock is held for as long as the agent lives: what another living agent works on must not be taken for interrupted.
	lock *os.File
}

func openDisk(stateDir string) (*disk, error) {
	d := &disk{dir: filepath.Join(stateDir, folder)}
	if err := d.make(); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(d.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the orders: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %s", ErrTwoAgents, stateDir)
		}
		return nil, errors.Join(err, lock.Close())
	}
	d.lock = lock
	return d, nil
}

func (d disk) close() error { return d.lock.Close() }

// taken is the form of an order on the disk.
type taken struct {
	At    time.Time       `json:"taken_at"`
	Begun bool            `json:"begun"`
	Order json.RawMessage `json:"order"`
}

func (d disk) take(r *record) error {
	order, err := protojson.Marshal(r.order)
	if err != nil {
		return fmt.Errorf("encode order %s: %w", r.id, err)
	}
	text, err := json.Marshal(taken{r.taken.UTC(), r.begun, order})
	if err != nil {
		return fmt.Errorf("encode order %s: %w", r.id, err)
	}
	return d.write(r.id+takenSuffix, append(text, '\n'))
}

func (d disk) answer(id string, result []byte) error { return d.write(id+resultSuffix, result) }

// acknowledge need not be durable: a lost one makes the result be sent once more.
func (d disk) acknowledge(id string) error {
	return os.WriteFile(filepath.Join(d.dir, id+heldSuffix), nil, 0o600)
}

func (d disk) result(id string) ([]byte, error) {
	return os.ReadFile(filepath.Join(d.dir, id+resultSuffix)) //nolint:gosec // the form of the id was checked
}

// forget removes an order. What was taken goes last, so that a result is never found without its order.
func (d disk) forget(id string) error {
	var failed error
	for _, suffix := range []string{heldSuffix, resultSuffix, takenSuffix} {
		if err := os.Remove(filepath.Join(d.dir, id+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// write makes a file appear whole or not at all.
func (d disk) write(name string, content []byte) error {
	unfinished := filepath.Join(d.dir, unfinishedName)
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // below the state folder
	if err != nil {
		return fmt.Errorf("record an order: %w", err)
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("record an order: %w", err)
	}
	if err := os.Rename(unfinished, filepath.Join(d.dir, name)); err != nil {
		return fmt.Errorf("record an order: %w", err)
	}
	return syncFolder(d.dir)
}

// make makes the folder, and makes sure that it and the state folder are still there after a power cut.
func (d disk) make() error {
	if _, err := os.Stat(d.dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of orders: %w", err)
	}
	state := filepath.Dir(d.dir)
	return errors.Join(syncFolder(state), syncFolder(filepath.Dir(state)))
}

func syncFolder(dir string) error {
	opened, err := os.Open(dir) //nolint:gosec // the state folder, which the operator names
	if err != nil {
		return fmt.Errorf("write a folder to the disk: %w", err)
	}
	if err := errors.Join(opened.Sync(), opened.Close()); err != nil {
		return fmt.Errorf("write a folder to the disk: %w", err)
	}
	return nil
}

// load reads every order that was taken. One whose record is damaged is there too, without its content: it was taken.
func (d disk) load() ([]*record, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the orders taken so far: %w", err)
	}
	var records []*record
	for _, entry := range entries {
		id, found := strings.CutSuffix(entry.Name(), takenSuffix)
		if !found || orderform.CheckID(id) != nil {
			continue
		}
		r, err := d.loadOne(id)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

func (d disk) loadOne(id string) (*record, error) {
	path := filepath.Join(d.dir, id)
	text, err := os.ReadFile(path + takenSuffix) //nolint:gosec // below the state folder
	if err != nil {
		return nil, fmt.Errorf("read an order taken before: %w", err)
	}
	r := parseTaken(id, text)
	if info, err := os.Stat(path + takenSuffix); err == nil && r.order == nil {
		r.taken = info.ModTime()
	}
	if info, err := os.Stat(path + resultSuffix); err == nil {
		r.answered, r.size = true, info.Size()
		r.load = func() ([]byte, error) { return d.result(id) }
	}
	if _, err := os.Stat(path + heldSuffix); err == nil {
		r.acknowledged = true
	}
	return r, nil
}

// parseTaken reads the record of an order. What cannot be read counts as begun, so that it is never done again.
func parseTaken(id string, text []byte) *record {
	var told taken
	order := &offrampv1.Order{}
	err := json.Unmarshal(text, &told)
	if err == nil {
		err = (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(told.Order, order)
	}
	if err != nil || order.GetId() != id {
		return &record{id: id, begun: true, taken: told.At}
	}
	return &record{id: id, order: order, begun: told.Begun, taken: told.At}
}
