package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/benchtarget"
)

// state is what a node of a size holds, but for the IPVS table itself, which needs a guest.
type state struct{ addresses, members, services, elements int }

func bigState() state {
	return state{addresses: 10_000, members: 100_000, services: 2_500, elements: 50_000}
}
func smallState() state { return state{addresses: 100, members: 1_000, services: 100, elements: 0} }

// enter moves the benchmark's thread, and the programs that it starts, into a network namespace with this state.
func (s state) enter(b *testing.B) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Fatal(err)
	}
	feed(b, s.links(), "ip", "-batch", "-")
	feed(b, s.sets(), "ipset", "restore")
	feed(b, s.rules(), "iptables-nft-restore")
	if s.elements > 0 {
		feed(b, s.maps(), "nft", "-f", "-")
	}
}

func feed(b *testing.B, text, program string, args ...string) {
	b.Helper()
	if _, err := exec.LookPath(program); err != nil {
		b.Skipf("needs %s", program)
	}
	command := exec.CommandContext(b.Context(), program, args...)
	command.Stdin = strings.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %.500s", program, err, out)
	}
}

func (s state) links() string {
	var text strings.Builder
	text.WriteString("link set lo up\nlink add kube-ipvs0 type bridge\n")
	for i := range s.addresses {
		fmt.Fprintf(&text, "addr add 10.%d.%d.%d/32 dev kube-ipvs0\n", 100+i>>16, i>>8&255, i&255)
	}
	return text.String()
}

func (s state) sets() string {
	var text strings.Builder
	text.WriteString("create KUBE-CLUSTER-IP hash:ip,port maxelem 200000\ncreate KUBE-LOOP-BACK hash:ip,port,ip maxelem 200000\n")
	for i := range 32 {
		fmt.Fprintf(&text, "create other-%d hash:ip,port\n", i)
	}
	for i := range s.members / 2 {
		fmt.Fprintf(&text, "add KUBE-CLUSTER-IP 10.96.%d.%d,tcp:%d\n", i>>8&255, i&255, 80+i>>16)
		fmt.Fprintf(&text, "add KUBE-LOOP-BACK 10.244.%d.%d,tcp:%d,10.244.%d.%d\n", i>>8&255, i&255, 80+i>>16, i>>8&255, i&255)
	}
	return text.String()
}

// rules are two chains and six rules a Service, as iptables mode makes them.
func (s state) rules() string {
	var chains, rules strings.Builder
	chains.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n")
	for i := range s.services {
		service, endpoint := "KUBE-SVC-"+hash16(i), "KUBE-SEP-"+hash16(i)
		fmt.Fprintf(&chains, ":%s - [0:0]\n:%s - [0:0]\n", service, endpoint)
		address := fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp -m comment --comment \"ns/svc cluster IP\" -m tcp --dport 80 -j %s\n", address, service)
		fmt.Fprintf(&rules, "-A %s ! -s 10.244.0.0/16 -d %s/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ\n", service, address)
		fmt.Fprintf(&rules, "-A %s -m statistic --mode random --probability 0.5 -j %s\n-A %s -j %s\n", service, endpoint, service, endpoint)
		fmt.Fprintf(&rules, "-A %s -s 10.244.1.1/32 -j KUBE-MARK-MASQ\n-A %s -p tcp -m tcp -j DNAT --to-destination 10.244.1.1:80\n", endpoint, endpoint)
	}
	return chains.String() + rules.String() + "COMMIT\n"
}

// hash16 is a number in the digits that kube-proxy's hashes are written in, base32: other names would be somebody else's.
func hash16(n int) string {
	return strings.Map(func(digit rune) rune { return 'A' + digit - '0' }, fmt.Sprintf("%016d", n))
}

// maps is kube-proxy's table of nftables mode with elements in its map of Services.
func (s state) maps() string {
	var text strings.Builder
	text.WriteString("table ip kube-proxy {\n chain service-x { }\n map service-ips { type ipv4_addr . inet_proto . inet_service : verdict\n elements = {\n")
	for i := range s.elements {
		fmt.Fprintf(&text, "10.96.%d.%d . tcp . %d : goto service-x,\n", i>>8&255, i&255, 80+i>>16)
	}
	text.WriteString("}\n }\n}\n")
	return text.String()
}

// buildAgent builds the program as it is shipped.
func buildAgent(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "offramp-agent")
	command := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

// inspect runs the agent once. It returns its peak resident memory in MiB.
func inspect(b *testing.B, agent string, arg string) float64 {
	b.Helper()
	command := exec.CommandContext(b.Context(), agent, arg)
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%v: %.2000s", err, out)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatal("no resource usage")
	}
	return float64(usage.Maxrss) / 1024
}

// measure reports the median of one-shot scans, without what it costs to start the program at all.
func measure(b *testing.B, agent string) (cpu time.Duration, peak float64) {
	b.Helper()
	used := benchtarget.Turns(b,
		benchtarget.Turn{Who: unix.RUSAGE_CHILDREN, Do: func() { inspect(b, agent, "version") }},
		benchtarget.Turn{Who: unix.RUSAGE_CHILDREN, Do: func() { peak = max(peak, inspect(b, agent, "inspect")) }})
	cpu = used[1] - used[0]
	b.ReportMetric(milliseconds(cpu), "cpu-ms/scan")
	b.ReportMetric(milliseconds(used[0]), "cpu-ms/start")
	b.ReportMetric(peak, "peak-MiB")
	return cpu, peak
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkSmallNode: a node of 100 Services.
func BenchmarkSmallNode(b *testing.B) {
	agent := buildAgent(b)
	smallState().enter(b)
	cpu, peak := measure(b, agent)
	benchtarget.AtMost(b, "processor time of a scan in ms", milliseconds(cpu), 20, "")
	benchtarget.AtMost(b, "peak memory in MiB", peak, 24, "")
}

// BenchmarkBigNode: a node at the upper end, read once, and watched while nothing changes.
func BenchmarkBigNode(b *testing.B) {
	agent := buildAgent(b)
	bigState().enter(b)
	cpu, peak := measure(b, agent)
	benchtarget.AtMost(b, "peak memory in MiB", peak, 64, "")
	cycle, idle := watchNothing(b, agent)
	b.ReportMetric(float64(cycle.Microseconds())/1000, "cpu-ms/cycle")
	b.ReportMetric(idle, "idle-MiB")
	benchtarget.AtMost(b, "idle memory in MiB", idle, 32, "")
	benchtarget.AtMost(b, "processor time of a cycle without a change, in percent of a scan", 100*float64(cycle)/float64(cpu), 5, "")
}

// watchNothing runs the agent for a while without an aggregator in reach. It returns the processor time of one cycle and
// the resident memory in MiB afterwards.
func watchNothing(b *testing.B, agent string) (time.Duration, float64) {
	b.Helper()
	const interval, cycles = 500 * time.Millisecond, 40
	command := exec.CommandContext(b.Context(), agent, "run", "--aggregator", "127.0.0.1:1", "--insecure-plaintext",
		"--node", "bench", "--scan-interval", interval.String(), "--state-dir", b.TempDir())
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	}()
	time.Sleep(6 * time.Second) // the first scans
	before := processCPU(b, command.Process.Pid)
	time.Sleep(cycles * interval)
	used := processCPU(b, command.Process.Pid) - before
	return used / cycles, residentMiB(b, command.Process.Pid)
}

// processCPU reads utime and stime of /proc/PID/stat, in ticks of 10 ms.
func processCPU(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}

// BenchmarkBinary: what is shipped.
func BenchmarkBinary(b *testing.B) {
	info, err := os.Stat(buildAgent(b))
	if err != nil {
		b.Fatal(err)
	}
	benchtarget.AtMost(b, "size of the program in MiB", float64(info.Size())/(1<<20), 20, "")
}
