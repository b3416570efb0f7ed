package main

import (
	"bufio"
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
)

const port = ":8080"

// serve answers every line, and every datagram, with the name.
func serve(ctx context.Context, name string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", port)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	packets, err := config.ListenPacket(ctx, "udp", port)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveStreams(listener, name) })
	group.Go(func() error { return serveDatagrams(packets, name) })
	group.Go(func() error {
		<-ctx.Done()
		_, _ = listener.Close(), packets.Close()
		return nil
	})
	fmt.Println("serving", name)
	return group.Wait()
}

func serveStreams(listener net.Listener, name string) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		go func() {
			defer func() { _ = conn.Close() }()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if _, err := fmt.Fprintln(conn, name); err != nil {
					return
				}
			}
		}()
	}
}

func serveDatagrams(packets net.PacketConn, name string) error {
	buffer := make([]byte, 1500)
	for {
		_, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if _, err := packets.WriteTo([]byte(name+"\n"), from); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
}
