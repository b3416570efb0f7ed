package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/e2e/lab"
)

const (
	// syncLimit is what a kube-proxy may take from its start to its first complete sync: 20 s in software, minutes on a host with
	// ten times more to do than it can.
	syncLimit = 5 * time.Minute
	// syncPoll is how often kube-proxy is asked. In a machine in software an answer is a good part of a second's work.
	syncPoll, syncPollSoftware = 250 * time.Millisecond, time.Second
	// metricsURL is where every kube-proxy of the lab listens, which is the default.
	metricsURL = "http://127.0.0.1:10249"
	healthURL  = "http://127.0.0.1:10256"
)

// ProxyConfig is what of kube-proxy's configuration a test may choose.
type ProxyConfig struct {
	// Mode is ipvs, iptables or nftables.
	Mode string
	// Scheduler is ipvs.scheduler; empty is rr.
	Scheduler string
	// StrictARP is ipvs.strictARP.
	StrictARP bool
	// Args are further arguments, as --cleanup.
	Args []string
	// Without names programs that this kube-proxy finds broken, as in an image that lacks them or what they need: modprobe,
	// nft, iptables.
	Without []string
	// Emptied names folders that it finds empty, as a container into which they are not mounted: /lib/modules.
	Emptied []string
}

// Proxy is a running kube-proxy.
type Proxy struct {
	Process
	// Config is what it was started with.
	Config ProxyConfig

	node     *Node
	argv     []string
	settings string // its configuration file
}

// StartProxy starts kube-proxy on the node; see Proxy.WaitSynced.
func (n *Node) StartProxy(ctx context.Context, config ProxyConfig) (*Proxy, error) {
	files, err := n.proxyFiles(config)
	if err != nil {
		return nil, err
	}
	argv := append([]string{n.proxy, "--config", privateDir + "/config.yaml", "--v", "2"}, config.Args...)
	command, stdin, err := inPrivate(files, emptied(config.Emptied, without(config.Without, argv))...)
	if err != nil {
		return nil, err
	}
	process, err := n.Start(ctx, stdin, command...)
	if err != nil {
		return nil, fmt.Errorf("starting kube-proxy on %s: %w", n.Name, err)
	}
	return &Proxy{Process: process, Config: config, node: n, argv: argv, settings: files["config.yaml"]}, nil
}

// SyncedProxy starts kube-proxy and waits until it is in sync.
func (n *Node) SyncedProxy(ctx context.Context, config ProxyConfig) (*Proxy, error) {
	began := time.Now()
	p, err := n.StartProxy(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := p.WaitSynced(ctx); err != nil {
		return nil, err
	}
	n.cluster.log.step(began, "node %s: kube-proxy is in sync, mode %s", n.Name, config.Mode)
	return p, nil
}

func (n *Node) proxyFiles(config ProxyConfig) (map[string]string, error) {
	settings, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": config.Mode, "hostnameOverride": n.Name, "clusterCIDR": podsV4 + "," + podsV6,
		"clientConnection": map[string]any{"kubeconfig": privateDir + "/kubeconfig"},
		"ipvs":             map[string]any{"scheduler": config.Scheduler, "strictARP": config.StrictARP},
		// The host's own limits stay what they are.
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
	if err != nil {
		return nil, fmt.Errorf("writing kube-proxy's configuration: %w", err)
	}
	plane := n.cluster.plane
	access, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []any{map[string]any{"name": "lab", "cluster": map[string]any{
			"server": plane.api.base, "certificate-authority-data": []byte(plane.ca),
		}}},
		"users":    []any{map[string]any{"name": "kube-proxy", "user": map[string]any{"token": plane.proxyToken}}},
		"contexts": []any{map[string]any{"name": "lab", "context": map[string]any{"cluster": "lab", "user": "kube-proxy"}}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing kube-proxy's access to the API server: %w", err)
	}
	return map[string]string{"config.yaml": string(settings), "kubeconfig": string(access)}, nil
}

// WaitSynced waits until both families are in sync with all that the API server has.
func (p *Proxy) WaitSynced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	for {
		metrics, err := p.Get(ctx, metricsURL+"/metrics")
		if err == nil && synced(metrics) {
			return nil
		}
		select {
		case <-time.After(p.node.syncPoll()):
		case <-p.Done():
			return fmt.Errorf("kube-proxy on %s has ended; it said:\n%s", p.node.Name, lastLines(p.Output()))
		case <-ctx.Done():
			return fmt.Errorf("kube-proxy on %s is not in sync: %w; it said:\n%s", p.node.Name, errors.Join(err, ctx.Err()), lastLines(p.Output()))
		}
	}
}

func (n *Node) syncPoll() time.Duration {
	if n.Guest != nil && n.Guest.Accel == lab.TCG {
		return syncPollSoftware
	}
	return syncPoll
}

// Get asks one of kube-proxy's own addresses on the node.
func (p *Proxy) Get(ctx context.Context, url string) (string, error) {
	return Output(ctx, p.node, p.node.program, "get", url)
}

// Mode is what kube-proxy says it runs in.
func (p *Proxy) Mode(ctx context.Context) (string, error) {
	return p.Get(ctx, metricsURL+"/proxyMode")
}

// Healthy is what kube-proxy's health check says.
func (p *Proxy) Healthy(ctx context.Context) (bool, error) {
	text, err := p.Get(ctx, healthURL+"/healthz")
	if err != nil {
		return false, err
	}
	var answer struct{ Healthy bool }
	return answer.Healthy, json.Unmarshal([]byte(text), &answer)
}

// timestamps finds, for each family, when rules were last written and when they were last asked for.
var timestamps = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_(queued_)?timestamp_seconds\{ip_family="(IPv[46])"\} (\S+)$`)

// synced says whether both families have written rules since they were last asked to.
func synced(metrics string) bool {
	for _, family := range []string{"IPv4", "IPv6"} {
		at := SyncedAt(metrics, family)
		if at == 0 || at < timestamp(metrics, "queued_", family) {
			return false
		}
	}
	return true
}

// SyncedAt is when kube-proxy's metrics say that a family, IPv4 or IPv6, was last in sync, in seconds since 1970; 0 is
// never.
func SyncedAt(metrics, family string) float64 { return timestamp(metrics, "", family) }

func timestamp(metrics, kind, family string) float64 {
	for _, match := range timestamps.FindAllStringSubmatch(metrics, -1) {
		if match[1] == kind && match[2] == family {
			at, err := strconv.ParseFloat(match[3], 64)
			if err != nil {
				return 0
			}
			return at
		}
	}
	return 0
}

// End stops kube-proxy as its supervisor would.
func (p *Proxy) End() error {
	code, err := p.Stop(10 * time.Second)
	if err == nil && code != 0 && code != 128+15 {
		err = fmt.Errorf("kube-proxy on %s ended with status %d", p.node.Name, code)
	}
	return err
}
