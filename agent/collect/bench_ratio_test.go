package collect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
)

// cpu is the processor time that this process, or the children it waited for, have used.
func cpu(b *testing.B, who int) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(who, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// compare runs ours and the native tool in turns, and reports the processor time of ours over that of the tool.
func compare(b *testing.B, most float64, ours func(context.Context) error, tool string, args ...string) {
	b.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		b.Skipf("needs %s", tool)
	}
	var own, native time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		before := cpu(b, unix.RUSAGE_SELF)
		if err := ours(b.Context()); err != nil {
			b.Fatal(err)
		}
		own += cpu(b, unix.RUSAGE_SELF) - before
		before = cpu(b, unix.RUSAGE_CHILDREN)
		if err := exec.CommandContext(b.Context(), tool, args...).Run(); err != nil {
			b.Fatalf("%s %v: %v", tool, args, err)
		}
		native += cpu(b, unix.RUSAGE_CHILDREN) - before
	}
	ratio := float64(own) / float64(native)
	b.ReportMetric(ratio, "x-"+tool)
	b.ReportMetric(float64(own.Milliseconds())/float64(rounds), "own-cpu-ms/op")
	b.ReportMetric(float64(native.Milliseconds())/float64(rounds), "native-cpu-ms/op")
	if ratio > most {
		// Not a failure: on a busy machine the ratio moves by half. The number is there to be read.
		b.Logf("OVER THE LIMIT: %.2f times the processor time of %s %v, at most %.2f may be", ratio, tool, args, most)
	}
}

// BenchmarkRatioAddresses: 10,000 addresses on kube-ipvs0.
func BenchmarkRatioAddresses(b *testing.B) {
	enterWithAddresses(b)
	compare(b, 0.5, func(ctx context.Context) error {
		network, _, err := readNetwork(ctx)
		if err != nil {
			return err
		}
		if got := ipvsLinkSection(network).GetStable().GetIpvsLink().GetIpv4Addresses(); got != 10_000 {
			return fmt.Errorf("%d addresses", got)
		}
		addressesSection(network)
		return nil
	}, "ip", "addr")
}

// BenchmarkRatioLink: the same with routes, sockets and neighbours.
func BenchmarkRatioLink(b *testing.B) {
	enterWithAddresses(b)
	compare(b, 1, func(ctx context.Context) error {
		content := (&scan{scanner: New(Config{Host: DefaultHost()})}).readIPVSLink(ctx).GetStable().GetIpvsLink()
		if content.GetLocalRoutes() != 10_000 || content.GetSurroundingsError() != "" {
			return fmt.Errorf("%d routes, %s", content.GetLocalRoutes(), content.GetSurroundingsError())
		}
		return nil
	}, "ip", "addr")
}

// BenchmarkRatioIPSets: kube-proxy's 34 sets with 100,000 entries.
func BenchmarkRatioIPSets(b *testing.B) {
	enterNamespace(b)
	command := exec.CommandContext(b.Context(), "ipset", "restore")
	command.Stdin = strings.NewReader(kubeProxySets(100_000))
	if out, err := command.CombinedOutput(); err != nil {
		b.Skipf("%v: %s", err, out)
	}
	mods := newModules(DefaultHost())
	compare(b, 0.5, func(ctx context.Context) error {
		content := readIPSets(ctx, mods).GetStable().GetIpsets()
		if content.GetSets() != 34 || content.GetEntries() != 100_000 {
			return fmt.Errorf("%d sets, %d entries", content.GetSets(), content.GetEntries())
		}
		return nil
	}, "ipset", "list", "-t")
}

// kubeProxySets are all of kube-proxy's sets, with so many entries in those of cluster IPs and loop-back.
func kubeProxySets(entries int) string {
	var text strings.Builder
	for _, set := range kubeproxy.Sets() {
		options := "family inet maxelem 200000"
		switch {
		case set.Type == "bitmap:port":
			options = "range 0-65535"
		case set.Family == kubeproxy.IPv6:
			options = "family inet6"
		}
		fmt.Fprintf(&text, "create %s %s %s\n", set.Name, set.Type, options)
	}
	for i := range entries / 2 {
		fmt.Fprintf(&text, "add KUBE-CLUSTER-IP 10.96.%d.%d,tcp:%d\n", i>>8&255, i&255, 80+i>>16)
		fmt.Fprintf(&text, "add KUBE-LOOP-BACK 10.244.%d.%d,tcp:%d,10.244.%d.%d\n", i>>8&255, i&255, 80+i>>16, i>>8&255, i&255)
	}
	return text.String()
}

// BenchmarkRatioIPVS: 10,000 virtual servers with five real servers each, read twice. It needs ip_vs: a guest of the lab.
func BenchmarkRatioIPVS(b *testing.B) {
	if os.Getenv(nstest.InGuest) == "1" {
		if out, err := exec.CommandContext(b.Context(), "modprobe", "-a", "ip_vs", "ip_vs_rr").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	enterNamespace(b)
	host := DefaultHost()
	host.Proc = "/proc/thread-self" // whose net is that of the thread
	if _, err := openIPVS(host); err != nil {
		b.Skipf("needs ip_vs: %v", err)
	}
	// Without an address there is no local table, and no address passes for unicast.
	if err := exec.CommandContext(b.Context(), "ip", "link", "set", "lo", "up").Run(); err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "-A -t 10.96.%d.%d:80 -s rr\n", i/250, i%250)
		for real := range 5 {
			fmt.Fprintf(&text, "-a -t 10.96.%d.%d:80 -r 10.244.%d.%d:8080 -m -w 1\n", i/250, i%250, real, i%250)
		}
	}
	command := exec.CommandContext(b.Context(), "ipvsadm", "-R")
	command.Stdin = strings.NewReader(text.String())
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%v: %.500s", err, out)
	}
	compare(b, 0.5, func(ctx context.Context) error {
		table, _, _, err := readAgreedIPVS(ctx, host, func(context.Context) claims { return claims{} })
		if err == nil && len(table.servers) != 10_000 {
			err = fmt.Errorf("%d virtual servers", len(table.servers))
		}
		return err
	}, "ipvsadm", "-Sn")
}
