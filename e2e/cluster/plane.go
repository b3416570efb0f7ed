package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/authority"
	"offramp.dev/offramp/e2e/lab"
)

const (
	// apiPort is in the lab's own namespace, where nothing else listens.
	apiPort = "6443"
	// readyLimit is what etcd and the API server may take; it is 4 s on an idle machine.
	readyLimit = 90 * time.Second
	readyPoll  = 100 * time.Millisecond
	// kubernetesV4 is the Service by which pods reach the API server: the first address of servicesV4.
	kubernetesV4 = "10.96.0.1"
)

// plane is the control plane: two processes and the way to them.
type plane struct {
	etcd, apiserver *hostProcess
	api             *API
	ca              string // PEM
	accountsKey     string // PEM, signs service account tokens
	proxyToken      string

	kubelets    map[string]string       // tokens, by the node's name
	controllers map[string]*hostProcess // by the program's name; none where no node has a kubelet
}

func startPlane(ctx context.Context, l *lab.Lab, p programs, kubelets []string) (*plane, error) {
	address := l.HostAddr()
	files, err := planeFiles(address)
	if err != nil {
		return nil, err
	}
	adminToken, proxyToken := newToken(), newToken()
	files["tokens.csv"] = adminToken + ",offramp-admin,admin,system:masters\n" +
		proxyToken + ",system:kube-proxy,kube-proxy,system:node-proxier\n"
	pl := &plane{ca: files["ca.pem"], accountsKey: files["accounts-key.pem"], proxyToken: proxyToken, kubelets: map[string]string{}}
	files["audit.yaml"] = auditPolicy
	for _, name := range kubelets {
		pl.kubelets[name] = newToken()
		files["tokens.csv"] += pl.kubelets[name] + ",system:node:" + name + "," + name + ",system:nodes\n"
	}
	if pl.etcd, err = startPrivate(ctx, l, nil, etcdCommand(p.etcd)...); err != nil {
		return nil, err
	}
	if pl.apiserver, err = startPrivate(ctx, l, files, apiserverCommand(p.apiserver, address, len(kubelets) > 0)...); err != nil {
		return nil, err
	}
	if pl.api, err = newAPI(l, "https://"+address+":"+apiPort, pl.ca, adminToken); err != nil {
		return nil, err
	}
	return pl, pl.waitReady(ctx)
}

func startPrivate(ctx context.Context, l *lab.Lab, files map[string]string, argv ...string) (*hostProcess, error) {
	command, stdin, err := inPrivate(files, argv...)
	if err != nil {
		return nil, err
	}
	return startHost(l.Command(ctx, command...), stdin)
}

// planeFiles are the certificates and keys that the API server reads.
func planeFiles(address string) (map[string]string, error) {
	dir, err := os.MkdirTemp("", "offramp-authority-*")
	if err != nil {
		return nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made, err := authority.Make(dir, netip.MustParseAddr(address), netip.MustParseAddr(hostV6), netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr(kubernetesV4))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, path := range map[string]string{"ca.pem": made.CA, "server.pem": made.ServerCert, "server-key.pem": made.ServerKey} {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		files[name] = string(content)
	}
	files["accounts-key.pem"], err = newKey()
	return files, err
}

// newKey makes the key that service account tokens are signed with.
func newKey() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), nil
}

func newToken() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails; see crypto/rand
	return hex.EncodeToString(random[:])
}

func etcdCommand(program string) []string {
	return []string{
		program, "--data-dir", privateDir + "/data", "--log-level", "warn", "--unsafe-no-fsync",
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380",
	}
}

func apiserverCommand(program, address string, kubelets bool) []string {
	// The admission plugin wants service accounts and their tokens, which a controller makes that is not always here.
	more := []string{"--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount"}
	if kubelets {
		more = []string{"--authorization-mode", "Node,RBAC", "--allow-privileged", "--audit-policy-file", "audit.yaml", "--audit-log-path", "-",
			// The names of nodes mean nothing here.
			"--kubelet-preferred-address-types", "InternalIP"}
	}
	return append([]string{
		program, "--etcd-servers", "http://127.0.0.1:2379", "--secure-port", apiPort, "--bind-address", "0.0.0.0",
		"--advertise-address", address, "--cert-dir", privateDir + "/made",
		"--tls-cert-file", "server.pem", "--tls-private-key-file", "server-key.pem",
		"--token-auth-file", "tokens.csv", "--anonymous-auth=false",
		"--service-cluster-ip-range", servicesV4 + "," + servicesV6,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", "accounts-key.pem",
		"--service-account-signing-key-file", "accounts-key.pem", "--v", "1",
	}, more...)
}

// waitReady waits until the API server serves the namespaces and the roles that it makes itself.
func (p *plane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		err := p.api.Do(ctx, "GET", "/readyz", nil, nil)
		if err == nil {
			err = p.api.Do(ctx, "GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:node-proxier", nil, nil)
		}
		for _, namespace := range []string{"default", "kube-system"} {
			if err == nil {
				err = p.api.Do(ctx, "GET", "/api/v1/namespaces/"+namespace, nil, nil)
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(readyPoll):
		case <-p.etcd.Done():
			return fmt.Errorf("etcd has ended; it said:\n%s", lastLines(p.etcd.Output()))
		case <-p.apiserver.Done():
			return fmt.Errorf("kube-apiserver has ended; it said:\n%s", lastLines(p.apiserver.Output()))
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready (%w); it said:\n%s", err, lastLines(p.apiserver.Output()))
		}
	}
}

// lastLines is the end of a log, enough to see why a program failed.
func lastLines(text string) string {
	const most = 40
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
