package fleet

import "sync"

// interner keeps one value per key for as long as somebody holds it.
type interner[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*interned[K, V]
}

// interned is a value that is shared by all that acquired its key.
type interned[K comparable, V any] struct {
	key   K
	value V
	refs  int
}

func newInterner[K comparable, V any]() *interner[K, V] {
	return &interner[K, V]{entries: map[K]*interned[K, V]{}}
}

// has reports whether somebody holds the key.
func (i *interner[K, V]) has(key K) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.entries[key] != nil
}

// acquire returns the shared value of the key, which is the given one when nobody holds the key yet. Each call needs one
// release.
func (i *interner[K, V]) acquire(key K, value V) *interned[K, V] {
	i.mu.Lock()
	defer i.mu.Unlock()
	entry := i.entries[key]
	if entry == nil {
		entry = &interned[K, V]{key: key, value: value}
		i.entries[key] = entry
	}
	entry.refs++
	return entry
}

// release gives up an entry; nil is nobody's.
func (i *interner[K, V]) release(entry *interned[K, V]) {
	if entry == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if entry.refs--; entry.refs == 0 {
		delete(i.entries, entry.key)
	}
}

func (i *interner[K, V]) size() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.entries)
}
