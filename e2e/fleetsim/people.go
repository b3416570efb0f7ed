package fleetsim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Person asks the aggregator, as kubectl-offramp does.
type Person struct {
	Fleet offrampv1.FleetServiceClient
	conn  *grpc.ClientConn
}

// NewPerson connects with a token of the viewers' account. Close ends it.
func NewPerson(address string, issuer *Issuer, authority string) (*Person, error) {
	token, err := issuer.Token("offramp-viewer", "", time.Now())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return nil, errors.New("no authority")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: serverName}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithPerRPCCredentials(bearer(token)), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, fmt.Errorf("prepare to ask the aggregator: %w", err)
	}
	return &Person{Fleet: offrampv1.NewFleetServiceClient(conn), conn: conn}, nil
}

// Close ends the connection.
func (p *Person) Close() { _ = p.conn.Close() }

// Complete reports whether the answer about readiness is about n nodes, of which at most so many have left, and nothing is missing.
func (p *Person) Complete(ctx context.Context, n, left int) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := p.Fleet.GetReadiness(ctx, &offrampv1.GetReadinessRequest{})
	return err == nil && answer.GetNodes() == uint64(n) && answer.GetNeverSeen() == 0 && answer.GetSilent() <= uint64(left)
}

// AwaitComplete asks twice a second until the answer is complete.
func (p *Person) AwaitComplete(ctx context.Context, n, left int) (time.Duration, error) {
	began := time.Now()
	for !p.Complete(ctx, n, left) {
		if pause(ctx, 500*time.Millisecond); ctx.Err() != nil {
			answer, err := p.Fleet.GetReadiness(context.WithoutCancel(ctx), &offrampv1.GetReadinessRequest{})
			return time.Since(began), fmt.Errorf("the answer is not complete after %s: %d of %d nodes, %d never seen, %d silent (%w)",
				time.Since(began).Round(time.Second), answer.GetNodes(), n, answer.GetNeverSeen(), answer.GetSilent(), errors.Join(err, ctx.Err()))
		}
	}
	return time.Since(began), nil
}

// Silent is how many nodes were not heard of in time.
func (p *Person) Silent(ctx context.Context) (uint64, error) {
	answer, err := p.Fleet.GetReadiness(ctx, &offrampv1.GetReadinessRequest{})
	return answer.GetSilent(), err
}

// AskAll asks every node for what it has of a Service, and returns how many answered.
func (p *Person) AskAll(ctx context.Context) (answered uint64, err error) {
	stream, err := p.Fleet.GetService(ctx, &offrampv1.GetServiceRequest{Namespace: "default", Name: "web"})
	if err != nil {
		return 0, fmt.Errorf("ask all nodes: %w", err)
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return answered, fmt.Errorf("ask all nodes: %w", err)
		}
		if summary := event.GetSummary(); summary != nil {
			return summary.GetAnswered(), nil
		}
	}
}

// Latencies are how long answers took.
type Latencies []time.Duration

// At is the latency that a part of the answers did not exceed: 0.5 for the median.
func (l Latencies) At(part float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

// Ask asks for the readiness of the fleet and for the first page of its nodes, again and again until ctx ends.
func (p *Person) Ask(ctx context.Context, every time.Duration) (readiness, pages Latencies) {
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := p.Fleet.GetReadiness(ctx, &offrampv1.GetReadinessRequest{}); err == nil {
			readiness = append(readiness, time.Since(began))
		}
		pause(ctx, every/2)
		began = time.Now()
		if _, err := p.Fleet.ListNodes(ctx, &offrampv1.ListNodesRequest{}); err == nil {
			pages = append(pages, time.Since(began))
		}
		pause(ctx, every/2)
	}
	return readiness, pages
}

// Watch follows the fleet until ctx ends, calls synced after the first round, and hands the nodes to heard that change after it. With a
// pause it reads slowly: one event each. synced and heard may be nil.
func (p *Person) Watch(ctx context.Context, slow time.Duration, synced func(), heard func(*offrampv1.NodeSummary)) error {
	stream, err := p.Fleet.Watch(ctx, &offrampv1.WatchRequest{})
	if err != nil {
		return fmt.Errorf("watch the fleet: %w", err)
	}
	for first := true; ; {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		if event.GetSynced() != nil {
			if first = false; synced != nil {
				synced()
			}
		}
		if node := event.GetNode(); !first && node != nil && heard != nil {
			heard(node)
		}
		if slow > 0 {
			pause(ctx, slow)
		}
	}
}
