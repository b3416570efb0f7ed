package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forwarding is an API server with an aggregator behind its port-forward.
type forwarding struct {
	*httptest.Server
	t *testing.T
	// aggregator is where the pods' port leads; ca is what the ConfigMap has.
	aggregator string
	ca         []byte
	service    corev1.Service
	pods       []corev1.Pod
	// old: it knows SPDY alone. broken: what it says instead of forwarding. dead is a pod that it cannot reach.
	old    bool
	broken string
	dead   string

	mu    sync.Mutex
	asked []string
	ways  sync.WaitGroup
}

func podNamed(name string, ready corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "api", ContainerPort: 8443}}}}}}
}

func startForwarding(t *testing.T, fleet *fakeFleet) *forwarding {
	t.Helper()
	certificate, ca := certificateFor(t, "offramp-aggregator.offramp.svc")
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}
	f := &forwarding{t: t, ca: ca, aggregator: serve(t, fleet, grpc.Creds(credentials.NewTLS(config)))}
	f.service.Spec.Selector = map[string]string{"app": "offramp-aggregator"}
	f.service.Spec.Ports = []corev1.ServicePort{{Name: "metrics", Port: 9090}, {Name: "grpc", Port: 443, TargetPort: intstr.FromString("api")}}
	f.pods = []corev1.Pod{podNamed("a-0", corev1.ConditionFalse), podNamed("a-2", corev1.ConditionTrue), podNamed("a-1", corev1.ConditionTrue)}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(f.answer))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close(); f.ways.Wait() })
	return f
}

func certificateFor(t *testing.T, name string) (certificate tls.Certificate, ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (f *forwarding) answer(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	f.mu.Unlock()
	const space = "/api/v1/namespaces/offramp/"
	w.Header().Set("Content-Type", "application/json")
	switch rest := strings.TrimPrefix(r.URL.Path, space); {
	case rest == "serviceaccounts/offramp-viewer/token":
		f.send(w, map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": map[string]any{
			"token": "it", "expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}})
	case rest == "configmaps/offramp-authority":
		f.send(w, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]string{"ca.crt": string(f.ca)}})
	case rest == "services/offramp-aggregator":
		f.service.APIVersion, f.service.Kind = "v1", "Service"
		f.send(w, f.service)
	case rest == "pods" && r.URL.Query().Get("labelSelector") == "app=offramp-aggregator":
		f.send(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: f.pods})
	case strings.HasSuffix(rest, "/portforward") && rest != "pods/"+f.dead+"/portforward":
		f.upgrade(w, r)
	default:
		w.WriteHeader(http.StatusForbidden)
		f.send(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 403, Reason: metav1.StatusReasonForbidden, Message: "eve may not " + r.Method + " " + rest})
	}
}

func (f *forwarding) send(w io.Writer, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		f.t.Errorf("answering: %v", err)
	}
}

// upgrade turns a request into streams, in the way that it was asked for.
func (f *forwarding) upgrade(w http.ResponseWriter, r *http.Request) {
	streams := make(chan httpstream.Stream, 8)
	take := func(stream httpstream.Stream, _ <-chan struct{}) error { streams <- stream; return nil }
	if !websocket.IsWebSocketUpgrade(r) {
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			f.t.Errorf("handshake: %v", err)
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, take)
		if conn != nil {
			f.join(conn, streams)
		}
		return
	}
	if f.old {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{"SPDY/3.1+portforward.k8s.io"}}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		f.t.Errorf("upgrading: %v", err)
		return
	}
	conn, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("server", socket), take)
	if err != nil {
		f.t.Errorf("serving streams: %v", err)
		return
	}
	f.join(conn, streams)
}

// join leads the stream of data to the aggregator, until the connection ends.
func (f *forwarding) join(conn httpstream.Connection, streams <-chan httpstream.Stream) {
	var failures, data httpstream.Stream
	for range 2 {
		stream := <-streams
		if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			failures = stream
		} else {
			data = stream
		}
	}
	if port := data.Headers().Get(corev1.PortHeader); port != "8443" {
		f.t.Errorf("forwarded to port %s", port)
	}
	if f.broken != "" {
		_, _ = io.WriteString(failures, f.broken)
		_ = failures.Close()
		<-conn.CloseChan()
		return
	}
	there, err := net.Dial("tcp", f.aggregator)
	if err != nil {
		f.t.Errorf("reaching the aggregator: %v", err)
		return
	}
	f.ways.Go(func() { _, _ = io.Copy(there, data) })
	f.ways.Go(func() { _, _ = io.Copy(data, there) })
	<-conn.CloseChan()
	_ = there.Close()
}

// ask runs the program with nothing but a kubeconfig.
func (f *forwarding) ask(args ...string) result {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it, user: me}}],
clusters: [{name: it, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: me, user: {token: x}}]}`, f.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.t.Setenv("KUBECONFIG", path)
	return call(f.t.Context(), nil, args...)
}

func TestThroughTheAPIServer(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old %t", old), func(t *testing.T) {
			f := startForwarding(t, &fakeFleet{readiness: fleetOf(3, 2, 1, 0), nodes: someNodes(400)})
			f.old = old
			f.ask("ready").want(t, 2, "Nodes: 3 (2 ready", "")
			if got := f.ask("nodes", "-o", "name"); strings.Count(got.stdout, "\n") != 400 {
				t.Errorf("%d nodes, %s", strings.Count(got.stdout, "\n"), got.stderr)
			}
			if i := slices.Index(f.asked, "POST /api/v1/namespaces/offramp/pods/a-1/portforward"); old != (i >= 0) {
				t.Errorf("asked: %q", f.asked)
			}
		})
	}
}

func TestThroughTheAPIServerGoesOnToTheNextPod(t *testing.T) {
	f := startForwarding(t, &fakeFleet{readiness: fleetOf(1, 1, 0, 0)})
	f.dead = "a-1"
	f.ask("status").want(t, 0, "Nodes: 1", "")
}

func TestThroughTheAPIServerFails(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*forwarding)
		args  []string
		want  string
	}{
		"nobody is ready": {func(f *forwarding) { f.pods = f.pods[:1] }, nil, "none of the 1 behind the Service offramp/offramp-aggregator is ready"},
		"the last one ends": {func(f *forwarding) {
			now := metav1.Now()
			f.pods = f.pods[1:2]
			f.pods[0].DeletionTimestamp = &now
		}, nil, "none of the 1 behind"},
		"no pod":        {func(f *forwarding) { f.pods = nil }, nil, "none of the 0 behind"},
		"no selector":   {func(f *forwarding) { f.service.Spec.Selector = nil }, nil, "selects none"},
		"no port":       {func(f *forwarding) { f.service.Spec.Ports = nil }, nil, "has 0 ports and none of them is named grpc"},
		"no such port":  {func(f *forwarding) { f.service.Spec.Ports[1].TargetPort = intstr.FromString("x") }, nil, `no port "x"`},
		"refused":       {func(f *forwarding) { f.broken = "connection refused in the pod" }, nil, "connection refused"},
		"no right":      {func(f *forwarding) { f.pods, f.dead = f.pods[2:], "a-1" }, nil, "forwarding to the aggregator: the pod a-1: "},
		"another CA":    {func(f *forwarding) { _, f.ca = certificateFor(f.t, "offramp-aggregator.offramp.svc") }, nil, "signed by nobody we trust"},
		"another name":  {func(*forwarding) {}, []string{"--server-name", "elsewhere"}, "certificate is for another name"},
		"another space": {func(*forwarding) {}, []string{"-n", "elsewhere"}, "the Kubernetes API server: "},
	} {
		t.Run(name, func(t *testing.T) {
			f := startForwarding(t, &fakeFleet{readiness: fleetOf(1, 1, 0, 0)})
			tt.spoil(f)
			got := f.ask(append([]string{"status"}, tt.args...)...)
			got.want(t, 1, "", tt.want)
			if strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("not one line: %s", got.stderr)
			}
		})
	}
}

func TestNamespaceFlags(t *testing.T) {
	f := startForwarding(t, &fakeFleet{answers: serviceAnswers(nil)})
	for want, args := range map[string][]string{
		"namespaces/one/":     {"status", "-n", "one"},
		"namespaces/two/":     {"status", "--offramp-namespace", "two"},
		"namespaces/three/":   {"status", "-n", "three", "--offramp-namespace", "two"},
		"namespaces/offramp/": {"service", "-n", "one", "web"},
		"namespaces/four/":    {"service", "-n", "one", "web", "--offramp-namespace", "four"},
	} {
		f.asked = nil
		f.ask(args...)
		if len(f.asked) == 0 || !strings.Contains(strings.Join(f.asked, " "), want) {
			t.Errorf("%q asked %q", args, f.asked)
		}
	}
}
