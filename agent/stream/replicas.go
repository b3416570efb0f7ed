package stream

import (
	"context"
	"sync"
)

// replicas are the peers at the addresses of one aggregator's name.
type replicas struct {
	// begin runs a peer until its ctx ends; it does not block.
	begin func(ctx context.Context, m *member)

	mu      sync.Mutex
	members map[string]*member
}

// member is the place of a peer among the replicas.
type member struct {
	replicas *replicas
	address  string
	cancel   context.CancelFunc
	// hint says that a look at the name is worth it.
	hint func()

	// Under replicas.mu: whether a stream is open, and whether the name does not have the address any more.
	streaming, unwanted bool
}

// set makes the peers those of the addresses. A peer whose address has gone from the name keeps its stream for as long as that
// lives, for names are wrong more often than streams are; without one it ends.
func (r *replicas) set(ctx context.Context, addresses []string, hint func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		m.unwanted = true
	}
	for _, address := range addresses {
		if m := r.members[address]; m != nil {
			m.unwanted = false
			continue
		}
		m := &member{replicas: r, address: address, hint: hint}
		own, cancel := context.WithCancel(ctx)
		m.cancel, r.members[address] = cancel, m
		r.begin(own, m)
	}
	for _, m := range r.members {
		if m.unwanted && !m.streaming {
			r.end(m)
		}
	}
}

// end ends a peer. The caller holds mu.
func (r *replicas) end(m *member) {
	m.cancel()
	if r.members[m.address] == m {
		delete(r.members, m.address)
	}
}

// streams notes that a stream of the peer begins, and with false that it has ended: then the name is worth a look, and a peer that
// is wanted no more ends.
func (m *member) streams(open bool) {
	m.replicas.mu.Lock()
	defer m.replicas.mu.Unlock()
	m.streaming = open
	if !open && m.unwanted {
		m.replicas.end(m)
	}
	if !open {
		m.hint()
	}
}
