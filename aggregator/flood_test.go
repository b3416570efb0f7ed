package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// beatEvery is how often the well-behaved agents give a sign of life, patience how long none may be heard of one.
	beatEvery = 200 * time.Millisecond
	patience  = 5 * time.Second
)

// besieged is an aggregator with a few agents that behave, while others do not.
type besieged struct {
	*signer
	address string
	log     *output
	viewer  v1.FleetServiceClient
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	f := &besieged{signer: newSigner(t)}
	f.address, f.log = f.serveMTLS("--max-connections-per-address", "200")
	f.viewer = v1.NewFleetServiceClient(f.dial(f.address, f.issue("ada", "offramp:viewers")))
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for i := range 3 {
		name := fmt.Sprintf("good-%d", i)
		client := v1.NewAgentServiceClient(f.dial(f.address, f.node(name)))
		all.Go(func() {
			if err := behave(ctx, client, name); ctx.Err() == nil {
				t.Errorf("the stream of %s ended: %v", name, err)
			}
		})
	}
	f.awaitReports(3)
	return f
}

// awaitReports waits until the agents that behave have reported: before its first report nothing was heard of a node.
func (f *besieged) awaitReports(agents int) {
	f.t.Helper()
	for range 200 {
		answer, err := f.viewer.ListNodes(f.t.Context(), &v1.ListNodesRequest{})
		if err != nil {
			f.t.Fatalf("a viewer: %v", err)
		}
		heard := 0
		for _, node := range answer.GetNodes() {
			if node.GetLastSeen() != nil {
				heard++
			}
		}
		if heard >= agents {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Fatalf("%d agents did not report within 10 s", agents)
}

func (f *besieged) node(name string) tls.Certificate {
	return f.issue("system:node:"+name, "system:nodes")
}

// behave is what an agent does that has no news.
func behave(ctx context.Context, client v1.AgentServiceClient, name string) error {
	stream, err := client.Connect(ctx)
	if err != nil {
		return err
	}
	for _, first := range []*v1.ConnectRequest{
		{Message: &v1.ConnectRequest_Hello{Hello: &v1.Hello{Node: name, AgentVersion: "v", Instance: "i"}}},
		{Message: &v1.ConnectRequest_Report{Report: &v1.Report{}}},
	} {
		if err := stream.Send(first); err != nil {
			_, err = stream.Recv()
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(beatEvery):
		}
		if err := stream.Send(&v1.ConnectRequest{Message: &v1.ConnectRequest_Heartbeat{Heartbeat: &v1.Heartbeat{}}}); err != nil {
			_, err = stream.Recv()
			return err
		}
	}
}

// keepsPace holds that the agents that behave are heard of all the while, and that people get answers.
func (f *besieged) keepsPace(during string, misbehave func()) {
	f.t.Helper()
	end, longest := make(chan struct{}), make(chan time.Duration)
	go func() { longest <- f.watch(end) }()
	misbehave()
	close(end)
	if silence := <-longest; silence > patience {
		f.t.Errorf("during %s an agent was not heard of for %s", during, silence)
	} else {
		f.t.Logf("during %s the longest silence of an agent was %s; they beat every %s", during, silence.Round(time.Millisecond), beatEvery)
	}
}

func (f *besieged) watch(end <-chan struct{}) (longest time.Duration) {
	for {
		answer, err := f.viewer.ListNodes(context.Background(), &v1.ListNodesRequest{})
		if err != nil {
			f.t.Errorf("a viewer: %v", err)
		}
		for _, node := range answer.GetNodes() {
			if strings.HasPrefix(node.GetNode(), "good-") {
				longest = max(longest, answer.GetAt().AsTime().Sub(node.GetLastSeen().AsTime()))
			}
		}
		select {
		case <-end:
			return longest
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// 10,000 connections from one address, half of them with garbage for a handshake: those beyond the limit are closed.
func TestCrowd(t *testing.T) {
	const connections = 10_000
	f := besiege(t)
	dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	var open []net.Conn
	t.Cleanup(func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	f.keepsPace("a crowd", func() {
		for i := range connections {
			conn, err := dialer.DialContext(t.Context(), "tcp", f.address)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			open = append(open, conn)
			if i%2 == 0 {
				_, _ = conn.Write(make([]byte, 512))
			}
		}
	})
	for _, conn := range open[connections-100:] {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var late net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &late) && late.Timeout() {
			t.Fatalf("one of the last of %d connections is still open (%v)", connections, err)
		}
	}
	if !strings.Contains(f.log.String(), "too many connections from one address") {
		t.Error("nobody is told of the crowd")
	}
}

// Nodes with a good certificate and bad manners: 200 streams that say nothing, and a message of 1 GiB.
func TestBadManners(t *testing.T) {
	f := besiege(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	f.keepsPace("silent streams", func() {
		var all sync.WaitGroup
		for range 10 {
			client := v1.NewAgentServiceClient(f.dial(f.address, f.node("bad")))
			for range 20 {
				all.Go(func() {
					stream, err := client.Connect(ctx)
					if err == nil {
						_, err = stream.Recv()
					}
					if status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
						t.Errorf("a silent stream ended with %v", err)
					}
				})
			}
		}
		all.Wait()
	})
	f.keepsPace("a message of 1 GiB", func() {
		stream, err := f.dial(f.address, f.node("bad")).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			v1.AgentService_Connect_FullMethodName, grpc.ForceCodec(bytesCodec{}), grpc.MaxCallSendMsgSize(2<<30))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(make([]byte, 1<<30)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		var answer []byte
		if err := stream.RecvMsg(&answer); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("1 GiB ended with %v", err)
		}
	})
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) {
	data, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("not bytes but %T", v)
	}
	return data, nil
}

func (bytesCodec) Unmarshal([]byte, any) error { return nil }

func (bytesCodec) Name() string { return "proto" }

// Handshakes that stop half-way hold nobody up, and are cut.
func TestHalfHandshakes(t *testing.T) {
	f := besiege(t)
	dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	f.keepsPace("half handshakes", func() {
		var all sync.WaitGroup
		for range 150 {
			conn, err := dialer.DialContext(t.Context(), "tcp", f.address)
			if err != nil {
				t.Fatal(err)
			}
			// The beginning of a TLS record that never ends.
			_, _ = conn.Write([]byte{0x16, 0x03, 0x01, 0x40, 0x00, 0x01})
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				_ = conn.SetReadDeadline(time.Now().Add(40 * time.Second))
				var late net.Error
				if _, err := conn.Read(make([]byte, 1)); errors.As(err, &late) && late.Timeout() {
					t.Error("a handshake that stopped is not cut")
				}
			})
		}
		all.Wait()
	})
	// And somebody who shakes hands and then does not speak HTTP/2 is only one more.
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: f.pool, Certificates: []tls.Certificate{f.node("bad")}, NextProtos: []string{"h2"}}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write(make([]byte, 4096))
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) {
		t.Error("garbage instead of HTTP/2 is listened to")
	}
}
