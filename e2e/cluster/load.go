package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/cluster/traffic"
)

// loadInterval is the time from one request to a target to the next: a guest in software makes some 100 a second.
// loadTimeout is when one has failed: there an answer may take a second when the host is busy.
const (
	loadInterval = 250 * time.Millisecond
	loadTimeout  = 3 * time.Second
)

// Load is requests on their way.
type Load struct{ process Process }

// StartLoad makes requests from the node itself until the load is stopped. A target is LABEL=IP:PORT, with udp: or long:
// before the address for datagrams, or for one connection that is kept. Every other request is a new connection, and
// none is made again.
func (n *Node) StartLoad(ctx context.Context, targets ...string) (*Load, error) {
	return startLoad(ctx, n, n.program, Pace{loadInterval, loadTimeout}, targets)
}

// StartLoad makes requests from the pod; see Node.StartLoad.
func (p *Pod) StartLoad(ctx context.Context, targets ...string) (*Load, error) {
	return startLoad(ctx, p, p.Node.program, Pace{loadInterval, loadTimeout}, targets)
}

// Pace is the time from one request to a target to the next, and when one has failed.
type Pace struct{ Interval, Timeout time.Duration }

// StartLoadAt is StartLoad at another pace.
func (n *Node) StartLoadAt(ctx context.Context, pace Pace, targets ...string) (*Load, error) {
	return startLoad(ctx, n, n.program, pace, targets)
}

// StartLoadAt is StartLoad at another pace.
func (p *Pod) StartLoadAt(ctx context.Context, pace Pace, targets ...string) (*Load, error) {
	return startLoad(ctx, p, p.Node.program, pace, targets)
}

func startLoad(ctx context.Context, m Machine, program string, pace Pace, targets []string) (*Load, error) {
	argv := append([]string{program, "load", "-interval", pace.Interval.String(), "-timeout", pace.Timeout.String()}, targets...)
	process, err := m.Start(ctx, nil, argv...)
	if err != nil {
		return nil, fmt.Errorf("starting requests: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for !strings.Contains(process.Output(), asking) {
		if err := pause(ctx, readyPoll, process.Done()); err != nil {
			return nil, fmt.Errorf("waiting for the first request: %w: %s", err, process.Output())
		}
	}
	return &Load{process: process}, nil
}

// asking is what the endpoint program says when it begins.
const asking = "asking\n"

// Stop ends the requests and says what became of them, in the order of the targets.
func (l *Load) Stop() ([]traffic.Report, error) {
	const grace = 15 * time.Second
	stop := func() (int, error) { return l.process.Stop(grace) }
	select {
	case <-l.process.Done(): // by itself, since all of its connections broke
		stop = l.process.Wait
	default:
	}
	code, err := stop()
	if err != nil {
		return nil, err
	}
	var reports []traffic.Report
	_, result, _ := strings.Cut(l.process.Output(), asking)
	if err := json.Unmarshal([]byte(result), &reports); err != nil {
		return nil, fmt.Errorf("reading what became of requests (exit status %d): %w: %s", code, err, strings.TrimSpace(l.process.Output()))
	}
	return reports, nil
}
