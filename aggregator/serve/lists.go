package serve

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// lists fetches each distinct list once and keeps it while there is room.
type lists struct {
	limit   time.Duration
	flights singleflight.Group

	mu    sync.Mutex
	bytes int
	room  int
	// recent holds *keptList, the latest used first.
	recent *list.List
	byKey  map[string]*list.Element
}

type keptList struct {
	key   string
	items []string
	bytes int
}

func newLists(limit time.Duration, room int) *lists {
	return &lists{limit: limit, room: room, recent: list.New(), byKey: map[string]*list.Element{}}
}

// get returns the items of a list, from the cache or from the node behind l, which may be nil. The items are shared: they
// must not be changed. Whoever asks for the same list meanwhile waits for the one answer, at most for the limit.
func (c *lists) get(ctx context.Context, l *link, want *offrampv1.ListDigest) ([]string, error) {
	key := fmt.Sprintf("%d %d %x", want.GetName(), want.GetCount(), want.GetDigest())
	if items, kept := c.lookup(key); kept {
		return items, nil
	}
	if l == nil {
		return nil, errNotConnected
	}
	// The one that asks must not take the others down with it when its caller goes away.
	ctx = context.WithoutCancel(ctx)
	fetched, err, _ := c.flights.Do(key, func() (any, error) { return l.fetch(ctx, want, c.limit) })
	if err != nil {
		return nil, err
	}
	items, _ := fetched.([]string)
	c.keep(key, items)
	return items, nil
}

func (c *lists) lookup(key string) ([]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.byKey[key]
	if element == nil {
		return nil, false
	}
	c.recent.MoveToFront(element)
	return element.Value.(*keptList).items, true
}

func (c *lists) keep(key string, items []string) {
	kept := &keptList{key: key, items: items}
	for _, item := range items {
		// A string's header takes 16 bytes.
		kept.bytes += len(item) + 16
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != nil || kept.bytes > c.room {
		return
	}
	c.byKey[key] = c.recent.PushFront(kept)
	c.bytes += kept.bytes
	for c.bytes > c.room {
		oldest := c.recent.Remove(c.recent.Back()).(*keptList)
		delete(c.byKey, oldest.key)
		c.bytes -= oldest.bytes
	}
}
