package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// recordScript prints the files of a capture, each under its name. What would load a module is asked only where that is
// loaded already.
const recordScript = `
IP=/usr/sbin/ip; [ -e $IP ] || IP=/usr/bin/ip
part() { echo "==> $1"; }
loaded() { grep -qs . /proc/net/$1; }
part uname.txt; uname -a
part lsmod.txt; [ -e /proc/modules ] && lsmod
part ip-addr.txt; $IP -d address
part ip-route-local.txt; $IP route show table local; $IP -6 route show table local
part iptables-nft-save.txt; iptables-nft-save
part ip6tables-nft-save.txt; ip6tables-nft-save
part iptables-legacy-save.txt; loaded ip_tables_names && iptables-legacy-save
part ip6tables-legacy-save.txt; loaded ip6_tables_names && ip6tables-legacy-save
part nft-ruleset.txt; nft list ruleset
part ipset-save.txt; ipset save
part ipset-list-terse.txt; ipset list -terse
part proc-net-ip_vs.txt; [ -e /proc/net/ip_vs ] && cat /proc/net/ip_vs
part ipvsadm-save.txt; [ -e /proc/net/ip_vs ] && ipvsadm -Sn
part ipvsadm-stats.txt; [ -e /proc/net/ip_vs ] && ipvsadm -Ln --stats
part nfacct.txt; { [ -e /sys/module/nfnetlink_acct ] || grep -q ' nfnl_acct_find_get' /proc/kallsyms; } && ENDPOINT accounts
part sysctls.txt; for f in /proc/sys/net/ipv4/vs/* /proc/sys/net/ipv4/conf/all/* /proc/sys/net/ipv4/ip_forward /proc/sys/net/bridge/* \
	/proc/sys/net/netfilter/*; do [ -f "$f" ] && v=$(cat "$f") && echo "$f=$v"; done 2>/dev/null
true
`

// restoreOrder is part of every capture: what has to be there before what.
const restoreOrder = `lsmod.txt: modprobe each; nf_conntrack, ip_vs and its schedulers, dummy, nfnetlink_acct
nfacct.txt: nfacct add each name
ipset-save.txt: ipset restore; kernel 5.10 knows neither bucketsize nor initval
iptables-nft-save.txt ip6tables-nft-save.txt: iptables-nft-restore, ip6tables-nft-restore
iptables-legacy-save.txt ip6tables-legacy-save.txt: iptables-legacy-restore, ip6tables-legacy-restore
ip-addr.txt: links with their addresses; kube-ipvs0 is of type dummy and down
ipvsadm-save.txt: ipvsadm -R
nft-ruleset.txt: of it only the tables named kube-proxy: nft -f
sysctls.txt: those of ipvs mode
`

// Capture is what Record found, by file name; files that would be empty are missing.
type Capture map[string]string

// Record takes a capture of the node. p is its kube-proxy, or nil where none runs, and log what the last one has
// written. A log with an error that nobody explained makes no capture: what is wrong there would pass for a fact.
func (n *Node) Record(ctx context.Context, p *Proxy, log string) (Capture, error) {
	if lines := Unexplained(log); len(lines) > 0 {
		return nil, fmt.Errorf("kube-proxy on %s logged an error that nobody explained: %s: %s", n.Name, lines[0].File, lines[0].Text)
	}
	result, err := n.RunInput(ctx, []byte(strings.ReplaceAll(recordScript, "ENDPOINT", n.program)), "sh")
	if err != nil {
		return nil, err
	}
	if problems := withoutWarnings(result.Stderr); result.ExitCode != 0 || problems != "" {
		return nil, fmt.Errorf("recording %s: exit status %d: %s", n.Name, result.ExitCode, problems)
	}
	c := Capture(parts(result.Stdout))
	c["restore-order.txt"], c["kube-proxy.log"] = restoreOrder, withoutFlags(log)
	if p != nil {
		if err := c.addProxy(ctx, p); err != nil {
			return nil, err
		}
	}
	for name, text := range c {
		if text == "" {
			delete(c, name)
		}
	}
	return c, nil
}

// addProxy adds what kube-proxy says of itself.
func (c Capture) addProxy(ctx context.Context, p *Proxy) error {
	var errs [3]error
	c["proxyMode.txt"], errs[0] = p.Mode(ctx)
	c["healthz.json"], errs[1] = p.Get(ctx, healthURL+"/healthz")
	metrics, err := p.Get(ctx, metricsURL+"/metrics")
	errs[2] = err
	c["metrics.txt"] = ownMetrics(metrics)
	c["cmdline.txt"] = strings.Join(append([]string{"kube-proxy"}, p.argv[1:]...), " ")
	c["config.yaml"] = p.settings
	return errors.Join(errs[:]...)
}

// ownMetrics leaves out what every Go program and every client has, and the buckets of histograms.
func ownMetrics(metrics string) string {
	own := regexp.MustCompile(`^(# (HELP|TYPE) )?(kubeproxy_|kubernetes_build_info|kubernetes_feature_enabled|process_start_time)`)
	var kept strings.Builder
	for line := range strings.Lines(metrics) {
		if own.MatchString(line) && !strings.Contains(line, "_bucket{") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// withoutFlags leaves the long list of flags out of a log.
func withoutFlags(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "] FLAG: ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// parts splits what a script printed under "==> NAME".
func parts(text string) map[string]string {
	found := map[string]string{}
	for _, part := range strings.Split("\n"+strings.TrimSuffix(text, "\n"), "\n==> ")[1:] {
		name, content, _ := strings.Cut(part, "\n")
		if content != "" {
			content += "\n"
		}
		found[name] = content
	}
	return found
}

// Write writes a capture into a folder, which it makes.
func (c Capture) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a capture's folder: %w", err)
	}
	for name, text := range c {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing a capture: %w", err)
		}
	}
	return nil
}
