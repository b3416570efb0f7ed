package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// logged is a log to look into.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (h *hall) connect(ctx context.Context, text string) grpc.BidiStreamingClient[offrampv1.ConnectRequest, offrampv1.ConnectResponse] {
	h.t.Helper()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+text)
	stream, err := offrampv1.NewAgentServiceClient(h.dial()).Connect(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	return stream
}

// Only the one that names the own node gets through, and it does not help to say something else first.
func TestAnAgentSpeaksForItsOwnNode(t *testing.T) {
	cluster := newAPIServer(t)
	h := startHall(t, cluster.newTokens(nil))
	for node, want := range map[string]codes.Code{
		"node-a": codes.Unimplemented, "node-b": codes.PermissionDenied, "": codes.InvalidArgument, "node-a\n": codes.PermissionDenied, "NODE-A": codes.PermissionDenied,
	} {
		stream := h.connect(t.Context(), cluster.mint(token{}))
		if err := stream.Send(helloFrom(node)); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("Hello from %q by node-a's agent: %v, want %v", node, err, want)
		}
	}
	guard := New(nil, quiet())
	c := &call{guard: guard, rule: guard.rules[offrampv1.AgentService_Connect_FullMethodName], caller: Caller{Kind: Agent, Node: "node-a"}}
	if err := c.check(t.Context(), &offrampv1.ConnectRequest{}); err != nil || c.checked {
		t.Errorf("a message before Hello: %v, checked %t", err, c.checked)
	}
	if err := c.check(t.Context(), helloFrom("node-b")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another node's Hello after that: %v", err)
	}
}

// The wrong kind of caller is told so before a word is read, whatever else would refuse him later.
func TestTheWrongKindOfCaller(t *testing.T) {
	cluster := newAPIServer(t)
	guard := New(cluster.newTokens(nil), quiet())
	for method, account := range map[string]string{
		offrampv1.FleetService_ListNodes_FullMethodName: "offramp-agent", offrampv1.AgentService_Connect_FullMethodName: "offramp-operator",
	} {
		c := &call{guard: guard, method: method}
		err := c.admit(withToken(t.Context(), cluster.mint(token{account: account})))
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "s alone, and system:serviceaccount:offramp:"+account+" is none") {
			t.Errorf("%s by %s: %v", method, account, err)
		}
	}
	if cluster.asked("access") != 0 {
		t.Error("the API server was asked what an agent may do")
	}
}

// stayer is an authenticator that says how long its callers may stay, and takes one back.
type stayer struct {
	until time.Time
	ends  chan func(error)
}

func (s stayer) Authenticate(context.Context) (Caller, error) {
	follow := func(end func(error)) func() { s.ends <- end; return func() {} }
	return Caller{Kind: Agent, Name: "somebody", Node: "node-a", Until: s.until, grounds: grounds{follow: follow}}, nil
}

// open starts a stream whose handler listens for ever.
func open(t *testing.T, callers Authenticator) (grpc.BidiStreamingClient[offrampv1.ConnectRequest, offrampv1.ConnectResponse], *logged) {
	t.Helper()
	out := &logged{}
	h := startHallWith(t, callers, slog.New(slog.NewTextHandler(out, nil)), forever{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return h.connect(ctx, "x"), out
}

// forever is an agent service that listens until the stream ends.
type forever struct {
	offrampv1.UnimplementedAgentServiceServer
}

func (forever) Connect(stream grpc.BidiStreamingServer[offrampv1.ConnectRequest, offrampv1.ConnectResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// A stream ends with the proof that it rests on, and the agent is asked back, not turned away.
func TestAStreamEndsWithItsToken(t *testing.T) {
	stream, out := open(t, stayer{until: time.Now().Add(200 * time.Millisecond), ends: make(chan func(error), 1)})
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "expired") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(out.String(), "refused") {
		t.Errorf("the end of a token was logged as a refusal: %s", out)
	}
}

func TestAWithdrawnProofEndsTheStream(t *testing.T) {
	callers := stayer{until: time.Now().Add(time.Hour), ends: make(chan func(error), 1)}
	stream, out := open(t, callers)
	(<-callers.ends)(status.Error(codes.Unauthenticated, "withdrawn"))
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(out.String(), "reason=withdrawn"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no line says so: %s", out)
		}
	}
}

func TestFromContext(t *testing.T) {
	if _, ok := FromContext(t.Context()); ok {
		t.Error("a caller from nowhere")
	}
	cluster := newAPIServer(t)
	guard := New(cluster.newTokens(nil), quiet())
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+cluster.mint(token{account: "offramp-operator", id: "jti-1"}), ClaimedKey, "ada@example.com"))
	info := &grpc.UnaryServerInfo{FullMethod: offrampv1.FleetService_GetNode_FullMethodName}
	_, err := guard.Unary()(ctx, &offrampv1.GetNodeRequest{Node: "node-a"}, info, func(ctx context.Context, _ any) (any, error) {
		caller, ok := FromContext(ctx)
		if !ok || caller.Name != operator || caller.Claimed != "ada@example.com" || caller.TokenID != "jti-1" || caller.Kind.String() != "person" {
			t.Errorf("got %+v", caller)
		}
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Each refusal is one line that names who, what and why, until there are too many: then their number.
func TestRefusalsAreLogged(t *testing.T) {
	out := &logged{}
	cluster := newAPIServer(t)
	guard := New(cluster.newTokens(nil), slog.New(slog.NewJSONHandler(out, nil)))
	text := cluster.mint(token{account: "offramp-viewer", id: "jti-9"})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+text, ClaimedKey, "eve"))
	info := &grpc.StreamServerInfo{FullMethod: offrampv1.CleanupService_Apply_FullMethodName}
	refuse := func() {
		stream := &oneMessage{ctx: ctx}
		//nolint:contextcheck // the stream brings its own context
		err := guard.Stream()(nil, stream, info, func(_ any, stream grpc.ServerStream) error {
			return stream.RecvMsg(&offrampv1.ApplyRequest{Node: "node-a"})
		})
		if status.Code(err) != codes.PermissionDenied {
			t.Fatalf("got %v", err)
		}
	}
	refuse()
	for _, want := range []string{`"caller":"system:serviceaccount:offramp:offramp-viewer"`, `"claimed":"eve"`, `"token_id":"jti-9"`, `"node":"node-a"`, `"method":"/offramp.v1.CleanupService/Apply"`, `"status":"PermissionDenied"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	if strings.Contains(out.String(), text) || strings.Contains(out.String(), strings.Split(text, ".")[2]) {
		t.Error("the log has the token in it")
	}
	for range 3 * refusalsAtOnce {
		refuse()
	}
	if lines := strings.Count(out.String(), "\n"); lines > 2*refusalsAtOnce {
		t.Errorf("%d lines", lines)
	}
	if got := guard.Refusals(); got != 3*refusalsAtOnce+1 {
		t.Errorf("%d refusals were counted", got)
	}
	time.Sleep(200 * time.Millisecond)
	refuse()
	if !strings.Contains(out.String(), "refusals_not_logged") {
		t.Error("nothing tells of the lines that were left out")
	}
}

// oneMessage is a stream on which one message has come.
type oneMessage struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *oneMessage) Context() context.Context { return s.ctx }
func (s *oneMessage) RecvMsg(any) error        { return nil }

// 5,000 agents come back at once while the API server does not answer: each is heard at once.
func TestManyStreamsDoNotWait(t *testing.T) {
	const connections, each = 50, 100
	cluster := newAPIServer(t)
	hang := make(chan struct{})
	tokens := cluster.newTokens(nil)
	cluster.set(func() { cluster.hang = hang })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { tokens.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); close(hang); <-ended })
	h := startHall(t, tokens)
	var all sync.WaitGroup
	began := time.Now()
	for c := range connections {
		client := offrampv1.NewAgentServiceClient(h.dial())
		for i := range each {
			name := fmt.Sprintf("node-%d-%d", c, i)
			text := cluster.mint(token{node: name, pod: "pod-of-" + name})
			all.Go(func() {
				stream, err := client.Connect(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+text))
				if err == nil {
					_ = stream.Send(helloFrom(name))
					_, err = stream.Recv()
				}
				if status.Code(err) != codes.Unimplemented {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	all.Wait()
	took := time.Since(began)
	t.Logf("%d streams were heard within %s, %d reviews were begun", connections*each, took.Round(time.Millisecond), cluster.asked("review"))
	if got, most := cluster.asked("review"), reviewsAtOnce*(1+int(took/reviewLimit)); got > most {
		t.Errorf("%d reviews were begun within %s, at most %d wait at once", got, took, reviewsAtOnce)
	}
}
