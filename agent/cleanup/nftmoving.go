package cleanup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// nftSeen is what a transaction is made from: the tables that it changes, listed one after the other.
type nftSeen struct {
	tables map[string]nftTable
	// handles are the tables' own, 0 for one that is not there. They are never used again in a network namespace.
	handles map[string]uint64
	// generation is that of the ruleset at which all was listed; 0 where it moved meanwhile.
	generation uint32
	// singly: rules are deleted one by one, and chains only if nothing is left in them.
	singly bool
}

// look lists the tables that the transaction changes. No listing is of two moments, but they may be of different ones.
func (e *nftEdit) look(ctx context.Context) (*nftSeen, error) {
	before, err := nftGeneration()
	if err != nil {
		return nil, err
	}
	seen := &nftSeen{tables: map[string]nftTable{}}
	if seen.handles, err = e.tableHandles(); err != nil {
		return nil, err
	}
	for _, operation := range e.operations {
		name := tableOf(operation)
		if _, listed := seen.tables[name]; !listed && operation.GetDeleteTable() == nil {
			if seen.tables[name], err = e.lookAgain(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	after, err := nftGeneration()
	if before == after {
		seen.generation = after
	}
	return seen, err
}

// lookAgain lists a table until no commit came in between, which the kernel tells.
func (e *nftEdit) lookAgain(ctx context.Context, name string) (nftTable, error) {
	for {
		table, err := lookNFTTable(e.family, name)
		if !errors.Is(err, errChanged) || outOfStep(ctx) != nil {
			return table, err
		}
	}
}

// nftaTableHandle is NFTA_TABLE_HANDLE (linux/netfilter/nf_tables.h).
const nftaTableHandle = 4

// tableHandles are those of the tables that the transaction is about.
func (e *nftEdit) tableHandles() (map[string]uint64, error) {
	tables, err := nftAsk(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, e.family)
	if err != nil {
		return nil, fmt.Errorf("list the tables of nf_tables: %w", err)
	}
	handles := map[string]uint64{}
	for _, operation := range e.operations {
		handles[tableOf(operation)] = 0
	}
	for _, table := range tables {
		attributes, err := nftAttributes(table)
		if err != nil {
			return nil, err
		}
		name := nl.BytesToString(attributes[nftaTableName])
		if _, ours := handles[name]; ours && len(attributes[nftaTableHandle]) == 8 {
			handles[name] = binary.BigEndian.Uint64(attributes[nftaTableHandle])
		}
	}
	return handles, nil
}

// maxPins bounds how often one look is tried to be made use of.
const maxPins = 32

// pinned deletes what was seen although the ruleset has moved since: each rule by its handle, and chains only once they are
// empty, so that the kernel refuses all of it where any of that has changed. The generation has to stand still no longer than
// it takes to see that these are still the same tables: in another of the same name a handle would mean another rule.
func (e *nftEdit) pinned(ctx context.Context, seen *nftSeen) ([]offrampv1.OperationOutcome, error) {
	seen.singly = true
	const anyGeneration = 1 // it is put in when all else is ready
	batch := newNFTBatch(anyGeneration)
	outcomes, owner, err := e.write(batch, seen)
	if err != nil {
		return nil, err
	}
	for range maxPins {
		err := e.pin(ctx, batch, seen)
		var refused *refusedError
		switch {
		case err == nil:
			return outcomes, nil
		case errors.As(err, &refused):
			return nil, fmt.Errorf("%w: %s", errChanged, e.explain(err, owner).Error()) // another look tells what
		case errors.Is(err, errOtherTables) || !errors.Is(err, errChanged):
			return nil, err
		}
	}
	return nil, errChanged
}

// errOtherTables says that a table is not the one that was looked at.
var errOtherTables = fmt.Errorf("%w: a table was made or deleted", errChanged)

// pin does a transaction if these are still the tables that were seen.
func (e *nftEdit) pin(ctx context.Context, batch *nftBatch, seen *nftSeen) error {
	generation, err := nftGeneration()
	if err != nil {
		return err
	}
	now, err := e.tableHandles()
	if err != nil {
		return err
	}
	if !maps.Equal(now, seen.handles) {
		return errOtherTables
	}
	return batch.at(generation).commit(ctx)
}
