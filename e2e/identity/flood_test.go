package identity

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// pace watches the real nodes until stop is called, and returns the longest time that one of them was not heard of.
func (s *stage) pace() (stop func() time.Duration) {
	var longest time.Duration
	end, ended := make(chan struct{}), make(chan struct{})
	ctx := metadataFor(s.Context(), s.viewerToken)
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(200 * time.Millisecond):
			}
			answer, err := s.viewer.ListNodes(ctx, &offrampv1.ListNodesRequest{})
			if err != nil {
				s.Errorf("a viewer in between: %v", err)
				return
			}
			for _, node := range answer.GetNodes() {
				if s.agents[node.GetNode()] != nil {
					longest = max(longest, answer.GetAt().AsTime().Sub(node.GetLastSeen().AsTime()))
				}
			}
		}
	}()
	return func() time.Duration { close(end); <-ended; return longest }
}

// keeps holds that the pace was kept while something went on: heartbeats come each second.
func (s *stage) keeps(during string, f func()) {
	s.Helper()
	stop := s.pace()
	f()
	if longest := stop(); longest > 10*time.Second {
		s.Errorf("during %s a node was not heard of for %s", during, longest)
	} else {
		s.Logf("during %s the longest silence of a node was %s", during, longest.Round(10*time.Millisecond))
	}
	s.stands(during)
}

// dialFrom connects from another address of this machine.
func (s *stage) dialFrom(local string) (conn net.Conn, err error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	doErr := s.lab.Do(func() error { conn, err = dialer.DialContext(s.Context(), "tcp", s.address()); return nil })
	return conn, errors.Join(doErr, err)
}

// 10,000 connections from one address, half of them with garbage for a handshake: beyond the limit they are closed, and the
// nodes at other addresses do not notice.
func TestCrowd(t *testing.T) {
	const connections, limit = 10_000, 200
	s := setUp(t, "--max-connections-per-address", "200")
	before := len(s.aggregator.out.String())
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	s.keeps("a crowd", func() {
		for i := range connections {
			conn, err := s.dialFrom("127.0.0.9")
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			if i%2 == 0 {
				_, _ = conn.Write(make([]byte, 512))
			}
			open = append(open, conn)
		}
	})
	s.aggregator.says(t, before, "too many connections from one address", `"address":"127.0.0.9"`)
	turned := 0
	for _, conn := range open[len(open)-100:] {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			turned++
		}
	}
	if turned < 100 {
		t.Errorf("%d of the last 100 connections of %d were closed, the limit is %d", turned, connections, limit)
	}
}

// Agents with a good token who misbehave: streams that say nothing, and a message of 1 GiB.
func TestGoodTokensBadManners(t *testing.T) {
	s := setUp(t)
	token := s.agentToken("node-x")
	s.keeps("silent streams", func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 10 {
			client := offrampv1.NewAgentServiceClient(s.dial())
			for range 20 {
				all.Go(func() {
					stream, err := client.Connect(metadataFor(ctx, token))
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
	s.keeps("1 GiB", func() {
		stream, err := s.dial().NewStream(metadataFor(t.Context(), token), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			offrampv1.AgentService_Connect_FullMethodName, grpc.ForceCodec(bytesCodec{}), grpc.MaxCallSendMsgSize(2<<30))
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
	if s.summary("node-x") != nil {
		t.Error("a node that reported nothing is in view")
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error   { return nil }
func (bytesCodec) Name() string                  { return "proto" }
