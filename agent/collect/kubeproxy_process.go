package collect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kubeProxyName = "kube-proxy"
	// maxProcesses, maxArgs and maxArgBytes bound what is reported of processes, as facts.proto says.
	maxProcesses = 20
	maxArgs      = 32
	maxArgBytes  = 256
	// maxProcFile bounds what is read of one file of a process, in bytes.
	maxProcFile = 1 << 16
	// kernelThread is PF_KTHREAD among the flags in /proc/PID/stat (linux/sched.h).
	kernelThread = 0x00200000
	// clockTicks is USER_HZ, the unit of times in /proc/PID/stat: 100 a second on every architecture that runs Kubernetes.
	clockTicks = 100
)

// process is a running kube-proxy.
type process struct {
	pid     int32
	args    []string // in full
	started time.Time
}

// processList is what the process table shows of kube-proxy.
type processList struct {
	kubeProxies []process // by process id
	// visible: these are the processes of the node, so that a kube-proxy among them would have been seen.
	visible bool
}

// readProcesses looks for processes named kube-proxy.
//
// The node's processes are in sight when kthreadd is, or a kubelet: kernel threads are in no PID namespace but the
// first, and where the node is itself a container (kind), its kubelet marks its PID namespace. That process 1 is
// another program proves nothing: it may be the pod's own init or its pause process.
func readProcesses(host Host) (processList, error) {
	entries, err := os.ReadDir(host.Proc)
	if err != nil {
		return processList{}, fmt.Errorf("list the processes: %w", err)
	}
	list := processList{visible: showsKernelThreads(host)}
	hidden := false
	for _, entry := range entries {
		pid, err := strconv.ParseInt(entry.Name(), 10, 32)
		if err != nil {
			continue
		}
		name, args, err := readProcess(host, entry.Name())
		hidden = hidden || err != nil && !hasVanished(err)
		switch {
		case err != nil || len(args) == 0:
		case name == kubeProxyName:
			list.kubeProxies = append(list.kubeProxies, process{int32(pid), args, startTime(host, entry.Name())})
		case name == "kubelet":
			list.visible = true
		}
	}
	list.visible = list.visible && !hidden
	return list, nil
}

// readProcess reads name and arguments; the arguments only of names that matter. Zombies and kernel threads have none.
func readProcess(host Host, pid string) (name string, args []string, err error) {
	comm, err := readProcFile(host, pid, "comm")
	if err != nil {
		return "", nil, err
	}
	name = strings.TrimSuffix(string(comm), "\n")
	if name != kubeProxyName && name != "kubelet" {
		return name, nil, nil
	}
	line, err := readProcFile(host, pid, "cmdline")
	if err != nil || len(line) == 0 {
		return name, nil, err
	}
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
		args = append(args, string(arg))
	}
	return name, args, nil
}

func readProcFile(host Host, pid, name string) ([]byte, error) {
	file, err := os.Open(filepath.Join(host.Proc, pid, name)) //nolint:gosec // a number below a root that the caller chose
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxProcFile))
}

// hasVanished tells a process that ended meanwhile from one that may not be looked at.
func hasVanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// showsKernelThreads reports whether process 2 is a kernel thread: kthreadd, by the flag that no program can give itself.
func showsKernelThreads(host Host) bool {
	fields := statFields(host, "2")
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 32)
	return err == nil && flags&kernelThread != 0
}

// startTime is when a process started, by the node's clock; the zero time when that cannot be told.
func startTime(host Host, pid string) time.Time {
	fields := statFields(host, pid)
	booted, err := bootTime(host)
	if err != nil || len(fields) < 20 {
		return time.Time{}
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil || ticks < 0 || ticks > 1<<40 {
		return time.Time{}
	}
	return booted.Add(time.Duration(ticks) * (time.Second / clockTicks))
}

// statFields returns the fields of /proc/PID/stat from the third on (man 5 proc). The second, the name in parentheses, may
// itself have spaces and parentheses.
func statFields(host Host, pid string) []string {
	stat, err := readProcFile(host, pid, "stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// report is the process as it travels.
func (p process) report() *offrampv1.KubeProxyProcess {
	report := &offrampv1.KubeProxyProcess{Pid: p.pid, Name: kubeProxyName}
	for _, arg := range p.args[:min(len(p.args), maxArgs)] {
		report.Args = append(report.Args, cut(printable([]byte(arg)), maxArgBytes))
	}
	return report
}

// flag returns the value of a flag as pflag reads it: --name=value or --name value, the last one wins.
func (p process) flag(name string) (value string, found bool) {
	for i := 1; i < len(p.args); i++ {
		arg := p.args[i]
		if arg == "--" {
			break
		}
		if arg == "--"+name && i+1 < len(p.args) {
			i++
			value, found = p.args[i], true
		} else if given, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value, found = given, true
		}
	}
	return value, found
}
