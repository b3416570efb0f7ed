package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// listener hears an agent out before it says that it knows nothing.
type listener struct {
	offrampv1.UnimplementedAgentServiceServer
}

func (listener) Connect(stream grpc.BidiStreamingServer[offrampv1.ConnectRequest, offrampv1.ConnectResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return status.Error(codes.Unimplemented, "heard")
}

// hall is a server with every service of Offramp's and nothing behind it: who gets in is told UNIMPLEMENTED.
type hall struct {
	t       *testing.T
	server  *grpc.Server
	address string
	people  *signer
}

func startHall(t *testing.T, callers Authenticator) *hall {
	t.Helper()
	return startHallWith(t, callers, quiet(), listener{})
}

func startHallWith(t *testing.T, callers Authenticator, log *slog.Logger, agents offrampv1.AgentServiceServer) *hall {
	t.Helper()
	people := newSigner(t)
	guard := New(callers, log)
	transport := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{people.issue(t, "127.0.0.1")},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: people.pool()}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(transport)), grpc.UnaryInterceptor(guard.Unary()), grpc.StreamInterceptor(guard.Stream()))
	offrampv1.RegisterAgentServiceServer(server, agents)
	offrampv1.RegisterFleetServiceServer(server, offrampv1.UnimplementedFleetServiceServer{})
	offrampv1.RegisterCleanupServiceServer(server, offrampv1.UnimplementedCleanupServiceServer{})
	healthv1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &hall{t: t, server: server, address: socket.Addr().String(), people: people}
}

// dial connects with a client certificate, or without one.
func (h *hall) dial(certificates ...tls.Certificate) *grpc.ClientConn {
	h.t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: h.people.pool(), Certificates: certificates}
	conn, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// methods are all that are registered, with what they take and give.
func (h *hall) methods() (all []protoreflect.MethodDescriptor) {
	h.t.Helper()
	for service := range h.server.GetServiceInfo() {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			h.t.Fatal(err)
		}
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			all = append(all, methods.Get(i))
		}
	}
	return all
}

func fullName(m protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
}

// request is about node-a, in whatever way the method is told so.
func request(m protoreflect.MethodDescriptor) proto.Message {
	if m.Input().FullName() == "offramp.v1.ConnectRequest" {
		return helloFrom("node-a")
	}
	message := dynamicpb.NewMessage(m.Input())
	if node := m.Input().Fields().ByName("node"); node != nil {
		message.Set(node, protoreflect.ValueOfString("node-a"))
	}
	return message
}

func helloFrom(node string) *offrampv1.ConnectRequest {
	return &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Hello{Hello: &offrampv1.Hello{Node: node}}}
}

// callOnce makes one call and returns how it ended; OK stands for a stream that goes on.
func callOnce(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, fullName(m))
	if err != nil {
		return err
	}
	_ = stream.SendMsg(request(m)) // when it fails, RecvMsg says why
	_ = stream.CloseSend()
	return stream.RecvMsg(dynamicpb.NewMessage(m.Output()))
}

// The whole table, once more and by hand: who gets in where, for a request about node-a. Everybody else is refused.
func whoMay() map[string][]string {
	look := []string{"viewer", "operator", "operator of node-a", "operator of node-b", "viewer's certificate", "operator's certificate"}
	order := []string{"operator", "operator of node-a", "operator's certificate"}
	return map[string][]string{
		"/offramp.v1.AgentService/Connect":      {"agent of node-a", "node-a's certificate"},
		"/offramp.v1.FleetService/GetReadiness": look,
		"/offramp.v1.FleetService/ListNodes":    look,
		"/offramp.v1.FleetService/GetNode":      look,
		"/offramp.v1.FleetService/Watch":        look,
		"/offramp.v1.FleetService/GetDetail":    look,
		"/offramp.v1.FleetService/GetService":   look,
		"/offramp.v1.FleetService/GetCluster":   look,
		"/offramp.v1.FleetService/ListChanges":  look,

		"/offramp.v1.FleetService/ListAcceptances":    look,
		"/offramp.v1.FleetService/AcceptFinding":      {"operator", "operator's certificate"},
		"/offramp.v1.FleetService/WithdrawAcceptance": {"operator", "operator's certificate"},

		"/offramp.v1.CleanupService/Plan":    order,
		"/offramp.v1.CleanupService/Apply":   order,
		"/offramp.v1.CleanupService/Restore": order,
		"/grpc.health.v1.Health/Check":       append(look, "nobody", "agent of node-a", "agent of node-b", "node-a's certificate", "foreign account", "foreign namespace", "somebody's certificate"),
		"/grpc.health.v1.Health/List":        look,
		"/grpc.health.v1.Health/Watch":       look,

		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      look,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": look,
	}
}

// caller is a connection and what goes with each call.
type caller struct {
	conn  *grpc.ClientConn
	token string
}

func (h *hall) callers(cluster *apiserver) map[string]caller {
	plain := h.dial()
	byToken := func(want token) caller { return caller{plain, cluster.mint(want)} }
	byCertificate := func(name string, groups ...string) caller {
		return caller{conn: h.dial(h.people.issue(h.t, name, groups...))}
	}
	return map[string]caller{
		"nobody":                 {conn: plain},
		"agent of node-a":        byToken(token{}),
		"agent of node-b":        byToken(token{node: "node-b", pod: "pod-b"}),
		"viewer":                 byToken(token{account: "offramp-viewer"}),
		"operator":               byToken(token{account: "offramp-operator"}),
		"operator of node-a":     byToken(token{account: "offramp-operator-a"}),
		"operator of node-b":     byToken(token{account: "offramp-operator-b"}),
		"foreign account":        byToken(token{account: "default"}),
		"foreign namespace":      byToken(token{namespace: "elsewhere", account: "offramp-operator"}),
		"node-a's certificate":   byCertificate("system:node:node-a", "system:nodes"),
		"viewer's certificate":   byCertificate("ada", "offramp:viewers"),
		"operator's certificate": byCertificate("bob", "offramp:operators"),
		"somebody's certificate": byCertificate("system:node:node-a"),
	}
}

// Every method of every service, with every kind of caller.
func TestEveryMethodWithEveryCaller(t *testing.T) {
	cluster := newAPIServer(t)
	h := startHall(t, Either{Tokens: cluster.newTokens(nil), Certificates: Certificates{}})
	callers, may := h.callers(cluster), whoMay()
	for _, method := range h.methods() {
		allowed, listed := may[fullName(method)]
		if !listed {
			t.Errorf("nobody has said in this test who may call %s", fullName(method))
		}
		for name, caller := range callers {
			ctx := t.Context()
			if caller.token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+caller.token)
			}
			err := callOnce(ctx, caller.conn, method)
			code := status.Code(err)
			refused := code == codes.PermissionDenied || code == codes.Unauthenticated
			if refused == slices.Contains(allowed, name) {
				t.Errorf("%s by %s: %v", fullName(method), name, err)
			}
			if name == "nobody" && refused && code != codes.Unauthenticated {
				t.Errorf("%s by nobody: %v, want UNAUTHENTICATED", fullName(method), err)
			}
			if !refused && code != codes.Unimplemented && !answered(method, err) {
				t.Errorf("%s by %s did not get through: %v", fullName(method), name, err)
			}
		}
	}
	if cluster.asked("review") > 20 || cluster.asked("keys") != 1 {
		t.Errorf("the API server was asked %v", cluster.count)
	}
}

// answered says whether an error came from behind the guard.
func answered(m protoreflect.MethodDescriptor, err error) bool {
	reflects := m.Parent().Name() == "ServerReflection"
	return err == nil || errors.Is(err, io.EOF) || reflects && status.Code(err) == codes.InvalidArgument
}

// A method that nobody thought of is for nobody, also where nobody is asked who they are.
func TestAnUnlistedMethodIsRefused(t *testing.T) {
	cluster := newAPIServer(t)
	for name, callers := range map[string]Authenticator{"kubernetes": cluster.newTokens(nil), "none": nil} {
		guard := New(callers, quiet())
		delete(guard.rules, offrampv1.FleetService_ListNodes_FullMethodName)
		info := &grpc.UnaryServerInfo{FullMethod: offrampv1.FleetService_ListNodes_FullMethodName}
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+cluster.mint(token{account: "offramp-operator"})))
		_, err := guard.Unary()(ctx, &offrampv1.ListNodesRequest{}, info, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without an authenticator everybody gets in everywhere, and is nobody.
func TestNobodyIsAsked(t *testing.T) {
	h := startHall(t, nil)
	for _, method := range h.methods() {
		if code := status.Code(callOnce(t.Context(), h.dial(), method)); code == codes.PermissionDenied || code == codes.Unauthenticated {
			t.Errorf("%s: %v", fullName(method), code)
		}
	}
}

// signer is a certificate authority of one test.
type signer struct {
	certificate *x509.Certificate
	key         any
}
