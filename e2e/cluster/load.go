package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/cluster/traffic"
)

// loadInterval is the time from one request to a target to the next. A guest in software makes some 100 a second.
const loadInterval = 250 * time.Millisecond

// Load is requests on their way.
type Load struct{ process Process }

// StartLoad makes requests from the node itself until the load is stopped. A target is LABEL=IP:PORT, with udp: or long:
// before the address for datagrams, or for one connection that is kept. Every other request is a new connection, and
// none is made again.
func (n *Node) StartLoad(ctx context.Context, targets ...string) (*Load, error) {
	return startLoad(ctx, n, n.program, targets)
}

// StartLoad makes requests from the pod; see Node.StartLoad.
func (p *Pod) StartLoad(ctx context.Context, targets ...string) (*Load, error) {
	return startLoad(ctx, p, p.Node.program, targets)
}

func startLoad(ctx context.Context, m Machine, program string, targets []string) (*Load, error) {
	argv := append([]string{program, "load", "-interval", loadInterval.String()}, targets...)
	process, err := m.Start(ctx, nil, argv...)
	if err != nil {
		return nil, fmt.Errorf("starting requests: %w", err)
	}
	return &Load{process: process}, nil
}

// Stop ends the requests and says what became of them, in the order of the targets.
func (l *Load) Stop() ([]traffic.Report, error) {
	const grace = 15 * time.Second
	code, err := l.process.Stop(grace)
	if err != nil {
		return nil, err
	}
	var reports []traffic.Report
	if err := json.Unmarshal([]byte(l.process.Output()), &reports); err != nil {
		return nil, fmt.Errorf("reading what became of requests (exit status %d): %w: %s", code, err, strings.TrimSpace(l.process.Output()))
	}
	return reports, nil
}
