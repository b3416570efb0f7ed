package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// errNoFullList ends a watch whose first round takes longer than a call may.
var errNoFullList = errors.New("the first full list took too long")

// eventTaker prints the events of a watch.
type eventTaker interface {
	event(*offrampv1.WatchResponse) error
}

// watch hands every event to the follower until ctx ends, which is how a watch is meant to end. Only the first round has a
// deadline: what comes after it may take for ever.
func (c *connection) watch(parent context.Context, target offrampv1.Target, follower eventTaker) error {
	return c.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := context.WithCancelCause(parent)
		defer cancel(nil)
		limit := time.AfterFunc(c.timeout, func() { cancel(errNoFullList) })
		defer limit.Stop()
		err := follow(ctx, client, target, func(event *offrampv1.WatchResponse) error {
			if event.GetSynced() != nil {
				limit.Stop()
			}
			return follower.event(event)
		})
		if parent.Err() != nil {
			return nil
		}
		return c.watchEnded(ctx, err)
	})
}

// follow hands over every event; it ends with an error.
func follow(ctx context.Context, client offrampv1.FleetServiceClient, target offrampv1.Target, each func(*offrampv1.WatchResponse) error) error {
	stream, err := client.Watch(ctx, &offrampv1.WatchRequest{Target: target})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := each(event); err != nil {
			return printError{err}
		}
	}
}

// printError is an error of the output, not of the watch.
type printError struct{ error }

func (c *connection) watchEnded(ctx context.Context, err error) error {
	var output printError
	switch {
	case errors.As(err, &output):
		return output.error
	case errors.Is(context.Cause(ctx), errNoFullList):
		return fmt.Errorf("watching the nodes: no full list from the aggregator at %s within %s; is the address right? --timeout allows for more", c.place(), c.timeout)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("watching the nodes: the aggregator at %s ended the watch; it may be restarting", c.place())
	}
	return c.explain("watching the nodes", err)
}

// follower prints the events of a watch.
type follower struct {
	w      io.Writer
	output string
	// beside is where it is told that nodes may be missing: the rows are for programs, too.
	beside io.Writer
	table  render.NodeTable
	// first holds the first round until it is complete, so that it comes out sorted and aligned.
	first  []*offrampv1.NodeSummary
	synced bool
}

func newFollower(w, beside io.Writer, output string, now func() time.Time) *follower {
	return &follower{w: w, beside: beside, output: output, table: render.NodeTable{Wide: output == "wide", Now: now}}
}

func (f *follower) event(event *offrampv1.WatchResponse) error {
	switch f.output {
	case "json":
		return render.JSONLine(f.w, event)
	case "yaml":
		if _, err := io.WriteString(f.w, "---\n"); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return render.YAML(f.w, event)
	}
	switch told := event.GetEvent().(type) {
	case *offrampv1.WatchResponse_Node:
		return f.node(told.Node)
	case *offrampv1.WatchResponse_Synced:
		return errors.Join(render.Missing(f.beside, told.Synced.GetIncomplete()), f.firstRound())
	case *offrampv1.WatchResponse_Forgotten:
		return f.forgotten(told.Forgotten)
	}
	return nil
}

func (f *follower) node(node *offrampv1.NodeSummary) error {
	if !f.synced {
		f.first = append(f.first, node)
		return nil
	}
	return f.print(node)
}

func (f *follower) firstRound() error {
	slices.SortStableFunc(f.first, func(a, b *offrampv1.NodeSummary) int { return strings.Compare(a.GetNode(), b.GetNode()) })
	first := f.first
	f.first, f.synced = nil, true
	return f.print(first...)
}

func (f *follower) forgotten(node string) error {
	if !f.synced {
		f.first = slices.DeleteFunc(f.first, func(known *offrampv1.NodeSummary) bool { return known.GetNode() == node })
		return nil
	}
	if f.output == "name" {
		return nil
	}
	return f.table.Forgotten(f.w, node)
}

func (f *follower) print(nodes ...*offrampv1.NodeSummary) error {
	if f.output == "name" {
		return render.Names(f.w, nodes)
	}
	return f.table.Write(f.w, nodes...)
}
