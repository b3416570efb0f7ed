package failover

import (
	"context"
	"os"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/programs"
	"offramp.dev/offramp/internal/nstest"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// stage is two replicas, and nodes of which some report what changes and some are cleaned up.
type stage struct {
	*testing.T

	names     *dns
	replicas  []*replica
	reporting []*node
	cleaned   []*node
	// ctx ends when nothing more is to happen.
	ctx context.Context
}

// How many nodes of each kind there are.
const reporters, cleanups = 8, 4

// setUp returns nil outside of the namespace.
func setUp(t *testing.T) *stage {
	t.Helper()
	if !nstest.Enter(t) {
		return nil
	}
	nstest.NeedTool(t, "ipset", "ip")
	nstest.NeedKernel(t, "ip_set", "bridge")
	s := &stage{T: t}
	addBridge(t)
	s.names = serveDNS(t)
	for i := range 2 {
		s.replicas = append(s.replicas, s.addReplica(i))
	}
	for i := range reporters {
		s.reporting = append(s.reporting, s.addNode(1+i))
	}
	for i := range cleanups {
		s.cleaned = append(s.cleaned, s.addNode(1+reporters+i))
	}
	until(t, 60*time.Second, "both replicas know every node", func() bool { return s.differs() == "" })
	return s
}

func (s *stage) nodes() []*node { return append(append([]*node{}, s.reporting...), s.cleaned...) }

// pause waits, but not beyond the end.
func (s *stage) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}
