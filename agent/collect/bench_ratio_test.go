package collect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/benchtarget"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
)

// comparison is what a benchmark measures of a reading against a native tool that yields the same facts on the same state.
type comparison struct {
	// most is the target for the processor time of ours over that of the tool; 0 for none.
	most float64
	// bare asks the kernel the same without looking at its answer: what no reader can go below. It may be nil.
	bare func(context.Context) error
	tool []string
}

// measure runs ours, what is bare of it, and the tool in turns, and holds the ratio against its target.
func (c comparison) measure(b *testing.B, ours func(context.Context) error) {
	b.Helper()
	if _, err := exec.LookPath(c.tool[0]); err != nil {
		b.Skipf("needs %s", c.tool[0])
	}
	b.ReportAllocs()
	must := func(do func(context.Context) error) func() {
		return func() {
			if err := do(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	turns := []benchtarget.Turn{{Who: unix.RUSAGE_SELF, Do: must(ours)}, {Who: unix.RUSAGE_CHILDREN, Do: must(func(ctx context.Context) error {
		return exec.CommandContext(ctx, c.tool[0], c.tool[1:]...).Run()
	})}}
	if c.bare != nil {
		turns = append(turns, benchtarget.Turn{Who: unix.RUSAGE_SELF, Do: must(c.bare)})
	}
	used := benchtarget.Turns(b, turns...)
	tool, note := strings.Join(c.tool, " "), ""
	ratio := float64(used[0]) / float64(used[1])
	b.ReportMetric(ratio, "x-of-native")
	b.ReportMetric(float64(used[0].Microseconds())/1000, "cpu-ms/op")
	b.ReportMetric(float64(used[1].Microseconds())/1000, "native-cpu-ms/op")
	if c.bare != nil {
		bare := float64(used[2]) / float64(used[1])
		b.ReportMetric(bare, "x-bare")
		note = fmt.Sprintf("of that %.2f for the kernel's answer alone, not looked at", bare)
	}
	if c.most > 0 {
		benchtarget.AtMost(b, "processor time against `"+tool+"`", ratio, c.most, note)
	}
}

// bare sends a request, so many times, and drops the answer.
func bare(protocol, times int, request func() *nl.NetlinkRequest) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := openSocket(protocol)
		if err != nil {
			return err
		}
		defer s.close()
		for range times {
			if err := s.dump(ctx, request(), func([]byte) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}
}

// BenchmarkRatioAddresses: 10,000 addresses on kube-ipvs0.
func BenchmarkRatioAddresses(b *testing.B) {
	enterWithAddresses(b)
	addresses := func() *nl.NetlinkRequest {
		request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
		return request
	}
	comparison{0.5, bare(unix.NETLINK_ROUTE, 1, addresses), []string{"ip", "addr"}}.measure(b, func(ctx context.Context) error {
		network, _, err := readNetwork(ctx)
		if err != nil {
			return err
		}
		if got := ipvsLinkSection(network).GetStable().GetIpvsLink().GetIpv4Addresses(); got != 10_000 {
			return fmt.Errorf("%d addresses", got)
		}
		addressesSection(network)
		return nil
	})
}

// BenchmarkRatioLink: the same with routes, sockets and neighbours.
func BenchmarkRatioLink(b *testing.B) {
	enterWithAddresses(b)
	comparison{0, nil, []string{"ip", "addr"}}.measure(b, func(ctx context.Context) error {
		content := (&scan{scanner: New(Config{Host: DefaultHost()})}).readIPVSLink(ctx).GetStable().GetIpvsLink()
		if content.GetLocalRoutes() != 10_000 || content.GetSurroundingsError() != "" {
			return fmt.Errorf("%d routes, %s", content.GetLocalRoutes(), content.GetSurroundingsError())
		}
		return nil
	})
}

// BenchmarkRatioIPSets: kube-proxy's 34 sets with 100,000 entries, by a reader that has read them before.
func BenchmarkRatioIPSets(b *testing.B) {
	reader := &ipsetReader{mods: newModules(DefaultHost())}
	readKubeProxySets(b, 1, 0.5, func() *ipsetReader { return reader })
}

// BenchmarkRatioIPSetsFirst is the same read for the first time: twice, to be sure.
func BenchmarkRatioIPSetsFirst(b *testing.B) {
	mods := newModules(DefaultHost())
	readKubeProxySets(b, 2, 0, func() *ipsetReader { return &ipsetReader{mods: mods} })
}

func readKubeProxySets(b *testing.B, readings int, most float64, reader func() *ipsetReader) {
	b.Helper()
	enterNamespace(b)
	command := exec.CommandContext(b.Context(), "ipset", "restore")
	command.Stdin = strings.NewReader(kubeProxySets(100_000))
	if out, err := command.CombinedOutput(); err != nil {
		b.Skipf("%v: %s", err, out)
	}
	alone := bare(unix.NETLINK_NETFILTER, readings, setNamesRequest)
	comparison{most, alone, []string{"ipset", "list", "-t"}}.measure(b, func(ctx context.Context) error {
		content := reader().read(ctx).GetStable().GetIpsets()
		if content.GetSets() != 34 || content.GetEntries() != 100_000 {
			return fmt.Errorf("%d sets, %d entries", content.GetSets(), content.GetEntries())
		}
		return nil
	})
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
	comparison{0.5, nil, []string{"ipvsadm", "-Sn"}}.measure(b, func(ctx context.Context) error {
		table, _, _, err := readAgreedIPVS(ctx, host, func(context.Context) claims { return claims{} })
		if err == nil && len(table.servers) != 10_000 {
			err = fmt.Errorf("%d virtual servers", len(table.servers))
		}
		return err
	})
}
