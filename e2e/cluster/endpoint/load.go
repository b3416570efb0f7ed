package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"offramp.dev/offramp/e2e/cluster/traffic"
)

// target is one address that is asked again and again.
type target struct {
	label, network, address string
	long                    bool // keep one connection
}

func parseTarget(text string) (target, error) {
	label, address, ok := strings.Cut(text, "=")
	if !ok {
		return target{}, fmt.Errorf("%q: want LABEL=IP:PORT", text)
	}
	t := target{label: label, network: "tcp", address: address}
	if rest, ok := strings.CutPrefix(address, "udp:"); ok {
		t.network, t.address = "udp", rest
	}
	if rest, ok := strings.CutPrefix(address, "long:"); ok {
		t.long, t.address = true, rest
	}
	if _, _, err := net.SplitHostPort(t.address); err != nil {
		return target{}, fmt.Errorf("%q: %w", text, err)
	}
	return t, nil
}

// load asks every target until ctx ends, each at its own pace.
func load(ctx context.Context, texts []string, interval, timeout time.Duration) ([]traffic.Report, error) {
	targets := make([]target, len(texts))
	for i, text := range texts {
		var err error
		if targets[i], err = parseTarget(text); err != nil {
			return nil, err
		}
	}
	counts := make([]traffic.Counter, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			counts[i].Report.Target = t.label
			t.ask(ctx, &counts[i], interval, timeout)
		})
	}
	all.Wait()
	reports := make([]traffic.Report, len(counts))
	for i := range counts {
		reports[i] = counts[i].Report
	}
	return reports, nil
}

// ask makes requests until ctx ends; one that has begun then is still finished. A request is never made again: what
// failed is counted.
func (t target) ask(ctx context.Context, count *traffic.Counter, interval, timeout time.Duration) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	var kept net.Conn
	for {
		began := time.Now()
		conn, name, err := t.request(context.WithoutCancel(ctx), kept, timeout)
		count.Add(time.Now(), time.Since(began), name, reason(err))
		kept = nil
		switch {
		case conn != nil && t.long && err == nil:
			kept = conn
		case conn != nil:
			_ = conn.Close()
		}
		if t.long && err != nil {
			return // it is broken for good, and that is what is to be seen
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// request sends one line and reads the answer, on a connection that is there already or on a new one.
func (t target) request(ctx context.Context, conn net.Conn, timeout time.Duration) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if conn == nil {
		var err error
		if conn, err = (&net.Dialer{}).DialContext(ctx, t.network, t.address); err != nil {
			return nil, "", err
		}
	}
	until, _ := ctx.Deadline()
	if err := conn.SetDeadline(until); err != nil {
		return conn, "", err
	}
	if _, err := io.WriteString(conn, "name\n"); err != nil {
		return conn, "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return conn, strings.TrimSpace(answer), err
}

// reason names an error in a word, since a report counts by it.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, io.EOF):
		return "closed"
	default:
		return err.Error()
	}
}
