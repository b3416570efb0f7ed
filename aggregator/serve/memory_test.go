package serve

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/readiness"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// BenchmarkStreams tells what a connected, quiet agent costs in heap and stacks, at both ends together, since both live in
// this process. It shows a change for the worse; it is no figure for the aggregator alone.
func BenchmarkStreams(b *testing.B) {
	const agents = 300
	for _, secure := range []bool{false, true} {
		b.Run(fmt.Sprintf("tls=%v", secure), func(b *testing.B) {
			for b.Loop() {
				bytes, goroutines := bothEnds(b, agents, secure)
				b.ReportMetric(bytes/agents/1024, "KiB/agent(both-ends)")
				b.ReportMetric(goroutines/agents, "goroutines/agent(both-ends)")
			}
		})
	}
}

func bothEnds(b *testing.B, agents int, secure bool) (bytes, goroutines float64) {
	b.Helper()
	config := Config{Store: fleet.New(fleet.Config{Assess: readiness.Assess, Log: quiet()}), Log: quiet()}
	creds := insecure.NewCredentials()
	if secure {
		var err error
		if config.TLS, err = TLSConfig(writePair(b, b.TempDir(), 1), quiet()); err != nil {
			b.Fatal(err)
		}
		creds = credentials.NewTLS(anyServer())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	//nolint:contextcheck // each call brings its own context
	go func() { ended <- New(config).Serve(ctx, listener) }()
	before := measure()
	for _, name := range nodeNames(agents) {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		connectQuietly(ctx, b, conn, name)
	}
	after := measure()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return after.bytes - before.bytes, after.goroutines - before.goroutines
}

func connectQuietly(ctx context.Context, b *testing.B, conn *grpc.ClientConn, name string) {
	b.Helper()
	stream, err := v1.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := stream.Send(hello(name)); err != nil {
		b.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		b.Fatal(err)
	}
	if err := stream.Send(report(kernelSection(name), setsSection(0))); err != nil {
		b.Fatal(err)
	}
}

type cost struct{ bytes, goroutines float64 }

func measure() cost {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return cost{bytes: float64(stats.HeapAlloc + stats.StackInuse), goroutines: float64(runtime.NumGoroutine())}
}
