package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/captures"
)

// restoreLimit is what putting a capture into a guest may take.
const restoreLimit = 3 * time.Minute

// Restore puts a capture's kernel state into a freshly booted guest and then reads it back with the native tools: what
// differs from the capture is an error. It restores modules, accounting objects, ipsets, links with addresses, both
// families' iptables rules of both backends, virtual servers, kube-proxy's own nftables tables and the sysctls of ipvs
// mode. It starts no kube-proxy; see e2e/standin.
//
// The node's own addresses of the capture go onto a link eth0, since virtual servers of NodePorts stand on them. It is
// one end of a veth pair, so that it is no dummy; its other end is called peer0.
func Restore(ctx context.Context, g *Guest, capture string) error {
	ctx, cancel := context.WithTimeout(ctx, restoreLimit)
	defer cancel()
	r := restoring{guest: g, capture: capture}
	if _, err := r.read("uname.txt"); err != nil {
		return fmt.Errorf("no capture %s: %w", capture, err)
	}
	began := time.Now()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"modules", r.modules}, {"accounting objects", r.accounts}, {"ipsets", r.ipsets}, {"iptables", r.iptables},
		{"links", r.links}, {"virtual servers", r.virtualServers}, {"nftables", r.nftables}, {"sysctls", r.sysctls},
		{"result", r.verify},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("restoring %s on %s (kernel %s): %s: %w", capture, g.Name, g.Release, step.what, err)
		}
	}
	g.lab.logf(began, "%s has the state of %s", g.Name, capture)
	return nil
}

// restoring is one restore on its way.
type restoring struct {
	guest   *Guest
	capture string
}

// read returns a file of the capture; one that is not there was empty.
func (r restoring) read(file string) (string, error) {
	content, err := captures.Read(r.capture, file)
	return string(content), err
}

func (r restoring) optional(file string) (string, error) {
	text, err := r.read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return text, err
}

// feed runs a program with a text as its input; nothing is done for an empty text.
func (r restoring) feed(ctx context.Context, text string, argv ...string) error {
	if text == "" {
		return nil
	}
	result, err := r.guest.RunInput(ctx, []byte(text), argv...)
	if err != nil {
		return err
	}
	if result.ExitCode != 0 || result.Stderr != "" {
		return fmt.Errorf("%s: exit status %d: %s", strings.Join(argv, " "), result.ExitCode, result.Stderr)
	}
	return nil
}

func (r restoring) modules(ctx context.Context) error {
	list, err := r.optional("lsmod.txt")
	if err != nil {
		return err
	}
	names := loadedModules(list)
	// A module that another kernel does not have, or has built in, is no error; a feature that is missing shows below.
	if _, err := r.guest.Run(ctx, append([]string{"modprobe", "-q", "-a"}, names...)...); err != nil {
		return err
	}
	loaded, err := r.guest.Output(ctx, "ls", "/sys/module")
	if err != nil {
		return err
	}
	return requireModules(names, strings.Fields(loaded))
}

func (r restoring) accounts(ctx context.Context) error {
	var names []string
	// Rules name theirs too: one capture was made without the list of them.
	for _, file := range []string{"nfacct.txt", "iptables-nft-save.txt", "ip6tables-nft-save.txt", "iptables-legacy-save.txt", "ip6tables-legacy-save.txt"} {
		text, err := r.optional(file)
		if err != nil {
			return err
		}
		names = append(names, accountNames(text)...)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return r.guest.account(ctx, slices.Compact(names))
}

func (r restoring) ipsets(ctx context.Context) error {
	saved, err := r.optional("ipset-save.txt")
	if err != nil {
		return err
	}
	if r.guest.Kernel == "5.10" {
		saved = withoutNewSetOptions(saved)
	}
	return r.feed(ctx, saved, "ipset", "restore")
}

func (r restoring) iptables(ctx context.Context) error {
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		saved, err := r.optional(program + "-save.txt")
		if err != nil {
			return err
		}
		if err := r.feed(ctx, saved, program+"-restore"); err != nil {
			return err
		}
	}
	return nil
}

func (r restoring) links(ctx context.Context) error {
	shown, err := r.read("ip-addr.txt")
	if err != nil {
		return err
	}
	return r.feed(ctx, linkCommands(parseLinks(onNodeLink(shown))), "ip", "-batch", "-")
}

func (r restoring) virtualServers(ctx context.Context) error {
	saved, err := r.optional("ipvsadm-save.txt")
	if err != nil {
		return err
	}
	return r.feed(ctx, saved, "ipvsadm", "-R")
}

func (r restoring) nftables(ctx context.Context) error {
	ruleset, err := r.optional("nft-ruleset.txt")
	if err != nil {
		return err
	}
	return r.feed(ctx, kubeProxyTables(ruleset), "nft", "-f", "-")
}

func (r restoring) sysctls(ctx context.Context) error {
	saved, err := r.read("sysctls.txt")
	if err != nil {
		return err
	}
	return r.feed(ctx, sysctlScript(saved), "sh", "-e")
}
