package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"offramp.dev/offramp/e2e/authority"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// stage is everything that the demo runs.
type stage struct {
	lab        *lab.Lab
	programs   programs
	aggregator *lab.HostCommand
	ended      chan struct{} // closed when the aggregator has ended
	endedBy    error         // with what; to be read after that
	logFile    string
	nodes      []*node // in the order of specs
	origin     origin
	seeded     int
	began      time.Time
}

const aggregatorPort = 8443

func (s *stage) address() string {
	return netip.AddrPortFrom(netip.MustParseAddr(s.lab.HostAddr()), aggregatorPort).String()
}

// setUp starts it all; when that fails it ends what it started.
func setUp(ctx context.Context, set settings, bin, work string) (*stage, error) {
	s := &stage{seeded: set.seed, began: time.Now(), logFile: filepath.Join(work, "aggregator.log")}
	s.say("three virtual machines, three kernels")
	if err := s.choose(ctx, set.standIn); err != nil {
		return nil, err
	}
	var err error
	if s.lab, err = lab.Start(ctx, lab.Options{Log: &progress{stage: s}}); err != nil {
		return nil, fmt.Errorf("starting the lab: %w", err)
	}
	if err := s.fill(ctx, bin, work); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// choose takes the real kube-proxy where it is at hand, and says which it is.
func (s *stage) choose(ctx context.Context, standIn bool) error {
	there, err := realProxy(ctx)
	if err != nil {
		return fmt.Errorf("looking for the real kube-proxy: %w", err)
	}
	const restoring = "; the nodes' kernel state is restored from captures of real nodes"
	switch {
	case standIn:
		s.origin = restored{s}
		s.say("kube-proxy: a stand-in, as asked for, that serves what the real one served" + restoring)
	case !there:
		s.origin = restored{s}
		s.say("kube-proxy: a stand-in that serves what the real one served (the real one is not in the cache; run make e2e once)" + restoring)
	default:
		s.origin = real{s}
		s.say("kube-proxy v%s (real) on each node, with a real kube-apiserver and %d Services", kube.Proxy137.Version, len(services())+1)
	}
	return nil
}

func (s *stage) fill(ctx context.Context, bin, work string) error {
	certificates, err := authority.Make(work, netip.MustParseAddr(s.lab.HostAddr()))
	if err != nil {
		return err
	}
	if s.programs, err = findPrograms(bin, certificates); err != nil {
		return err
	}
	if err := s.startAggregator(ctx); err != nil {
		return err
	}
	if err := s.bringNodes(ctx); err != nil {
		return err
	}
	return seed(ctx, s.node(dirty).guest, s.seeded)
}

func (s *stage) startAggregator(ctx context.Context) error {
	logs, err := os.Create(s.logFile)
	if err != nil {
		return fmt.Errorf("making the aggregator's log: %w", err)
	}
	defer func() { _ = logs.Close() }()
	s.aggregator = s.lab.Command(ctx, s.programs.aggregator, "run", "--auth", "none", "--listen", s.address(),
		"--heartbeat-interval", heartbeatInterval.String(),
		"--tls-cert-file", s.programs.certificates.ServerCert, "--tls-key-file", s.programs.certificates.ServerKey)
	s.aggregator.Stdout, s.aggregator.Stderr = logs, logs
	if err := s.aggregator.Start(); err != nil {
		return fmt.Errorf("starting the aggregator: %w", err)
	}
	s.ended = make(chan struct{})
	go func() {
		s.endedBy = s.aggregator.Wait()
		close(s.ended)
	}()
	s.say("offramp-aggregator listens on %s", s.address())
	return nil
}

// bringNodes brings all nodes up, and then their agents.
func (s *stage) bringNodes(ctx context.Context) error {
	for _, spec := range specs() {
		s.nodes = append(s.nodes, &node{nodeSpec: spec})
	}
	if err := s.origin.bring(ctx, s.nodes); err != nil {
		return err
	}
	return each(s.nodes, func(_ int, n *node) error { return n.startAgent(ctx, s.address()) })
}

func (s *stage) node(name string) *node {
	for _, n := range s.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// close ends everything: the machines, the aggregator, the network.
func (s *stage) close() error {
	err := s.lab.Close()
	if s.ended != nil {
		<-s.ended // killed with the lab: its exit status says nothing
	}
	return err
}

// say writes one line of progress with the time since the start.
func (s *stage) say(format string, args ...any) {
	fmt.Printf("[%5.1fs] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// progress shows the lab's own lines.
type progress struct {
	mu    sync.Mutex
	stage *stage
}

var _ io.Writer = (*progress)(nil)

// Write implements io.Writer, a line a call.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Printf("[%5.1fs] %s", time.Since(p.stage.began).Seconds(), line)
	return len(line), nil
}
