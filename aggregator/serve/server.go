package serve

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"offramp.dev/offramp/aggregator/audit"
	"offramp.dev/offramp/aggregator/auth"
	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/orders"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Config says what a Server serves and how.
type Config struct {
	// Store is what every node last said. Required.
	Store *fleet.Store
	// TLS is nil for plaintext.
	TLS *tls.Config
	// Guard decides who may call what. nil asks nobody who they are, for tests.
	Guard *auth.Guard
	// Version of this aggregator, told to agents.
	Version string
	// Log is required.
	Log *slog.Logger
	// Audit is where calls that order something are written. Default: the log.
	Audit *audit.Log
	// Cluster is what the Kubernetes API says. Default: nothing.
	Cluster fleet.Cluster
	// Acceptances keep accepted findings, and EndpointNames names addresses; nil without the Kubernetes API.
	Acceptances   Acceptances
	EndpointNames EndpointNames
	// Results, where it is not nil, is told how orders ended that were passed on here. It must not block.
	Results func(node string, result *offrampv1.OrderResult)
	// DrainTimeout is how long open calls may take to end at a stop (default 5 s).
	DrainTimeout time.Duration
}

// Server is the aggregator's gRPC server: AgentService, FleetService, health and reflection on one port.
type Server struct {
	grpc     *grpc.Server
	health   *health.Server
	streams  *streams
	desk     *orders.Desk
	crew     *crew
	lists    *lists
	store    *fleet.Store
	timeouts timeouts
	log      *slog.Logger
}

// New makes a server that does not listen yet.
func New(config Config) *Server {
	limits := defaultTimeouts()
	if config.DrainTimeout > 0 {
		limits.drain = config.DrainTimeout
	}
	return newServer(config, limits)
}

func newServer(config Config, limits timeouts) *Server {
	workers := newCrew()
	s := &Server{
		grpc:     grpc.NewServer(options(config, workers)...),
		crew:     workers,
		health:   health.NewServer(),
		streams:  &streams{open: map[*ender]struct{}{}},
		timeouts: limits,
		lists:    newLists(limits.list, maxListCache),
		store:    config.Store,
		log:      config.Log,
	}
	if config.Cluster == nil {
		config.Cluster = fleet.Alone{}
	}
	if config.Audit == nil {
		config.Audit = audit.ToLog(config.Log)
	}
	if config.Results == nil {
		config.Results = func(string, *offrampv1.OrderResult) {}
	}
	written := &auditor{config.Audit, config.Results}
	if config.Guard != nil {
		config.Guard.Tell(written.refused)
	}
	s.desk = orders.New(orders.Config{Log: config.Log, Unasked: written.unasked})
	offrampv1.RegisterAgentServiceServer(s.grpc, &agents{
		store: config.Store, version: config.Version, replica: rand.Text(), timeouts: limits, streams: s.streams, desk: s.desk, crew: workers, log: config.Log,
	})
	offrampv1.RegisterCleanupServiceServer(s.grpc, &cleanups{desk: s.desk, audit: written, streams: s.streams})
	offrampv1.RegisterFleetServiceServer(s.grpc, &questions{
		store: config.Store, around: config.Cluster, lists: s.lists, streams: s.streams, timeouts: limits,
		acceptances: config.Acceptances, endpoints: config.EndpointNames, audit: written,
	})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	return s
}

// options are the limits of a server for very many agents that are mostly quiet: small or no buffers per connection.
func options(config Config, workers *crew) []grpc.ServerOption {
	creds := insecure.NewCredentials()
	if config.TLS != nil {
		creds = inTurn(credentials.NewTLS(config.TLS))
	}
	guard := config.Guard
	if guard == nil {
		guard = auth.New(nil, config.Log)
	}
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.ReadBufferSize(0),
		// One call per connection: a table of headers would only keep the token twice.
		grpc.HeaderTableSize(0),
		grpc.WriteBufferSize(4 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTimeout, Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMin, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(newAgentCodec(workers)),
		grpc.ChainUnaryInterceptor(containUnary(config.Log), guard.Unary()),
		grpc.ChainStreamInterceptor(containStream(config.Log), guard.Stream()),
		grpc.WaitForHandlers(true),
	}
}

// Serve answers until ctx ends, then drains and returns nil. It closes the listener. A Server serves once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweepCtx, stopSweeping := context.WithCancel(ctx)
	defer stopSweeping()
	sweeping.Go(func() { s.desk.Run(sweepCtx) })
	defer s.crew.start()()
	ended, arrived := make(chan error, 1), newArrivals(listener)
	go func() { ended <- s.grpc.Serve(arrived) }()
	select {
	case err := <-ended:
		s.drain(arrived)
		return fmt.Errorf("serve on %v: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.drain(arrived)
	if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve on %v: %w", listener.Addr(), err)
	}
	return nil
}

// List brings a list that a node reported, from what is kept or from the node.
func (s *Server) List(ctx context.Context, node string, list *offrampv1.ListDigest) ([]string, error) {
	// Only links of this package are ever given to the store.
	l, _ := s.store.Link(node).(*link)
	return s.lists.get(ctx, l, list)
}

// drain says goodbye: not serving any more, streams end with UNAVAILABLE, what is left is cut after a while.
func (s *Server) drain(arrived *arrivals) {
	s.health.Shutdown()
	s.streams.endAll()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	late := time.NewTimer(s.timeouts.drain)
	defer late.Stop()
	select {
	case <-stopped:
		return
	case <-late.C:
		s.log.Warn("calls did not end in time and are cut", "after", s.timeouts.drain)
	}
	arrived.cut()
	s.grpc.Stop()
	<-stopped
}
