package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"offramp.dev/offramp/e2e/lab"
)

// iptablesNames are the programs that an alternative of iptables stands for.
var iptablesNames = []string{
	"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
}

// makeLegacy lets iptables mean iptables-legacy on the node, as Debian's alternatives would.
func (n *Node) makeLegacy(ctx context.Context) error {
	if n.Guest == nil {
		return n.makeLegacyHere(ctx)
	}
	var links strings.Builder
	for _, name := range iptablesNames {
		fmt.Fprintf(&links, "ln -sf %s /usr/sbin/%s\n", legacyName(name), name)
	}
	return feed(ctx, n, links.String(), "sh", "-e")
}

// legacyName is as iptables-save to iptables-legacy-save.
func legacyName(name string) string {
	return strings.Replace(name, "tables", "tables-legacy", 1)
}

// makeLegacyHere puts a folder of links first in the PATH of a node that shares the host's file system.
func (n *Node) makeLegacyHere(ctx context.Context) error {
	links := map[string]string{}
	for _, name := range iptablesNames {
		links[name] = legacyName(name)
	}
	return n.preferPrograms(ctx, "legacy", links)
}

// withoutModprobe keeps kube-proxy, whose cleaner asks for ip_vs, from loading a module into the host's kernel.
func (n *Node) withoutModprobe(ctx context.Context) error {
	return n.preferPrograms(ctx, "no-modprobe", map[string]string{"modprobe": "false"})
}

// preferPrograms lets names mean other programs of the host on a node that shares its file system. set names the links.
func (n *Node) preferPrograms(ctx context.Context, set string, links map[string]string) error {
	dir, err := lab.Cached(ctx, filepath.Join("links", set), func(path string) error {
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
		for name, target := range links {
			program, err := exec.LookPath(target)
			if err != nil {
				return fmt.Errorf("looking for a program: %w", err)
			}
			if err := os.Symlink(program, filepath.Join(path, name)); err != nil {
				return fmt.Errorf("linking %s: %w", name, err)
			}
		}
		return nil
	})
	n.programs = append(n.programs, dir)
	way := strings.Join(append(n.programs, os.Getenv("PATH")), ":")
	n.Machine = hosted{network: n.network, env: []string{"PATH=" + way}}
	return err
}

// addSecondNIC gives the node what makes "all node addresses" more than one: a secondary address, and a link of its own
// with an address of each family. In a virtual machine that link's other end is in the machine too.
func (n *Node) addSecondNIC(ctx context.Context) error {
	const link = "eth1"
	if n.Guest == nil {
		if err := n.network.Join(link); err != nil {
			return err
		}
	} else if err := ip(ctx, n, "link add "+link+" type veth peer name peer1", "link set peer1 up", "link set "+link+" up"); err != nil {
		return err
	}
	return ip(ctx, n, fmt.Sprintf("address add 198.18.100.%d/16 dev %s", n.number, uplink),
		fmt.Sprintf("address add 198.19.0.%d/24 dev %s", n.number, link), fmt.Sprintf("address add fd00:19::%x/64 dev %s nodad", n.number, link))
}

// kubeletRules are what kubelet makes in each family; the IPv4 ones have a rule more.
const (
	kubeletRules = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:KUBE-KUBELET-CANARY - [0:0]
`
	kubeletFirewall = `:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
`
)

// addKubelet makes the chains of a kubelet, which is not here itself; see facts/kube-proxy.md section 1.4.
func (n *Node) addKubelet(ctx context.Context) error {
	if err := feed(ctx, n, kubeletRules+kubeletFirewall+"COMMIT\n", "iptables-restore", "--noflush"); err != nil {
		return fmt.Errorf("making kubelet's chains: %w", err)
	}
	if err := feed(ctx, n, kubeletRules+"COMMIT\n", "ip6tables-restore", "--noflush"); err != nil {
		return fmt.Errorf("making kubelet's chains: %w", err)
	}
	return nil
}
