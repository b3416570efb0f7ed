package probe_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/probe"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// path is the way that a mode of kube-proxy makes for connections, as the real one wrote it down.
type path struct {
	name, capture, file string
	restore, breaks     []string
	// tries is what is found to try, of IPv4.
	tries string
}

func paths() []path {
	const three = "kubernetes tcp 10.96.0.1:443, dns tcp 10.96.114.126:53, dns udp 10.96.114.126:53"
	return []path{
		// kube-proxy 1.34 has a chain for each endpoint; this cluster's Service with port 53 has it by UDP alone.
		{"nftables of 1.34", "1.34.4-nft-nftables", "nft-ruleset.txt", []string{"nft", "-f", "-"},
			[]string{"nft", "delete", "table", "ip", "kube-proxy"}, "kubernetes tcp 10.96.0.1:443"},
		{"nftables", "nftables", "nft-ruleset.txt", []string{"nft", "-f", "-"}, []string{"nft", "delete", "table", "ip", "kube-proxy"}, three},
		{"iptables-nft", "iptables", "iptables-nft-save.txt", []string{"iptables-nft-restore"}, []string{"iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES"}, three},
		{"iptables-legacy", "iptables", "iptables-nft-save.txt", []string{"iptables-legacy-restore"}, []string{"iptables-legacy", "-t", "nat", "-F", "KUBE-SERVICES"}, three},
	}
}

func run(t *testing.T, input string, argv ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	command.Stdin = strings.NewReader(input)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %.500s", strings.Join(argv, " "), err, out)
	}
}

// text is what restores the path: of the captures' nftables only kube-proxy's own tables, of iptables no accounting, for which
// the host has no module.
func (p path) text(t *testing.T) string {
	t.Helper()
	content, err := captures.Read(p.capture, p.file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	if p.file == "nft-ruleset.txt" {
		const head = "table ip kube-proxy {"
		_, rest, _ := strings.Cut(text, head)
		return head + rest
	}
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "nfacct") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// lay makes the node's network, the path, and listeners at the endpoints that the kernel tells of.
func (p path) lay(t *testing.T) []probe.Target {
	t.Helper()
	nstest.NeedTool(t, p.restore[0], "ip")
	run(t, "", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
	run(t, "", "ip", "address", "add", "192.0.2.2/24", "dev", "eth0")
	for _, link := range []string{"eth0", "peer0"} {
		run(t, "", "ip", "link", "set", link, "up")
	}
	run(t, "", "ip", "route", "add", "default", "via", "192.0.2.1")
	run(t, p.text(t), p.restore...)
	services, err := collect.New(collect.Config{Host: collect.DefaultHost()}).Services(t.Context(), probe.Pick)
	if err != nil {
		t.Fatal(err)
	}
	var ipv4 []probe.Target
	for _, target := range probe.Targets(nil, services) {
		if target.Service.Addr().Is4() {
			ipv4 = append(ipv4, target)
		}
	}
	answerAt(t, ipv4)
	return ipv4
}

func answerAt(t *testing.T, targets []probe.Target) {
	t.Helper()
	seen := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.2"): true}
	for _, target := range targets {
		for _, endpoint := range target.Endpoints {
			if !seen[endpoint.Addr()] {
				seen[endpoint.Addr()] = true
				run(t, "", "ip", "address", "add", endpoint.Addr().String()+"/32", "dev", "lo")
			}
			switch {
			case target.Protocol == "udp":
				listenUDP(t, endpoint.String(), 0)
			case target.Name == probe.NameDNS:
				listen(t, endpoint.String(), serveStream(t, 0))
			default:
				listen(t, endpoint.String(), func(net.Conn) {})
			}
		}
	}
}

// Through what the real kube-proxy wrote, in every mode and backend, connections to the VIPs reach the listeners.
func TestPaths(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			targets := p.lay(t)
			var words []string
			for i := range targets {
				words = append(words, targets[i].String())
			}
			if got := strings.Join(words, ", "); got != p.tries {
				t.Fatalf("tries %s, want %s", got, p.tries)
			}
			for _, said := range probe.Now((&probe.Prober{}).Thorough(t.Context(), targets)) {
				if said.GetVerdict() != offrampv1.ProbeVerdict_PROBE_VERDICT_WORKS {
					t.Error(probe.Sentence(said))
				}
			}
			run(t, "", p.breaks...)
			for _, said := range probe.Now((&probe.Prober{Timeout: 300 * time.Millisecond}).Thorough(t.Context(), targets)) {
				if said.GetVerdict() != offrampv1.ProbeVerdict_PROBE_VERDICT_FAILS {
					t.Errorf("without its rules: %s", probe.Sentence(said))
				}
			}
		})
	}
}

// breaking is a clean-up that takes away the rules that carry the traffic, and a restore that brings them back or not.
type breaking struct {
	t         *testing.T
	path      path
	text      string
	restores  bool
	restoring int
}

func (b *breaking) Guards(context.Context, *offrampv1.Plan, *cleanup.Reading) []*offrampv1.GuardFinding {
	return nil
}

func (b *breaking) Apply(context.Context, cleanup.Request) (*offrampv1.CleanupResult, error) {
	run(b.t, "", b.path.breaks...) //nolint:contextcheck // the test's
	return &offrampv1.CleanupResult{BackupId: "b1"}, nil
}

func (b *breaking) Restore(context.Context, cleanup.RestoreRequest) (*cleanup.RestoreResult, error) {
	b.restoring++
	result := &cleanup.RestoreResult{ID: "b1", Running: offrampv1.ProxyMode_PROXY_MODE_NFTABLES}
	if b.restores {
		run(b.t, b.text, b.path.restore...) //nolint:contextcheck // the test's
		result.Items = []cleanup.RestoreItem{{What: "the rules", Outcome: cleanup.Restored}}
	} else {
		result.Items = []cleanup.RestoreItem{{What: "the rules", Outcome: cleanup.NotAllowed, Why: "nftables runs"}}
	}
	return result, nil
}

// An apply that breaks the path through real rules is noticed, undone where that may be, and told loudly.
func TestABrokenPathIsRestored(t *testing.T) {
	for _, p := range paths() {
		for _, restores := range []bool{true, false} {
			name := p.name + map[bool]string{true: " and may come back", false: " and may not"}[restores]
			t.Run(name, func(t *testing.T) {
				if !nstest.Enter(t) {
					return
				}
				targets := p.lay(t)
				b := &breaking{t: t, path: p, text: p.text(t), restores: restores}
				var log bytes.Buffer
				executor := &probe.Executor{
					Cleaner: b, Undo: b.Restore, Log: slog.New(slog.NewTextHandler(&log, nil)),
					Prober:  &probe.Prober{Timeout: 500 * time.Millisecond},
					Targets: func(context.Context) ([]probe.Target, error) { return targets, nil },
				}
				result, err := executor.Apply(t.Context(), cleanup.Request{})
				if err != nil || b.restoring != 1 || len(probe.Broken(result.GetProbes())) != len(targets) || cleanup.ResultExit(result) != 1 {
					t.Fatalf("%v, restored %d times: %v", err, b.restoring, result)
				}
				end := "after that they answer again"
				if !restores {
					end = fmt.Sprintf("after that %d of %d still fail", len(targets), len(targets))
				}
				for _, words := range []string{probe.ErrBroke.Error(), "BROKEN", end} {
					if !strings.Contains(result.GetError(), words) || !strings.Contains(log.String(), words) {
						t.Errorf("it does not say %q:\n%s\n%s", words, result.GetError(), log.String())
					}
				}
			})
		}
	}
}
