package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"offramp.dev/offramp/e2e/lab"
)

// openDoor listens on this host's loopback and passes each connection on to an address in the lab's network, which nothing else of
// the host reaches.
func openDoor(ctx context.Context, l *lab.Lab, address string) (net.Listener, error) {
	outside, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for kubectl: %w", err)
	}
	go func() {
		for {
			conn, err := outside.Accept()
			if err != nil {
				return // it is closed
			}
			go pass(ctx, l, conn, address)
		}
	}()
	return outside, nil
}

// pass copies both ways until both sides have said all.
func pass(ctx context.Context, l *lab.Lab, outer net.Conn, address string) {
	defer func() { _ = outer.Close() }()
	inner, err := l.Dial(ctx, "tcp", address)
	if err != nil {
		return // the other side sees its connection closed
	}
	defer func() { _ = inner.Close() }()
	var both sync.WaitGroup
	both.Go(func() { copyOne(inner, outer) })
	both.Go(func() { copyOne(outer, inner) })
	both.Wait()
}

// copyOne tells the receiver when the sender has said all.
func copyOne(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
