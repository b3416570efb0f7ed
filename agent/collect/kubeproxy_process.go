package collect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
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

// process is a process of the host that matters to kube-proxy.
type process struct {
	pid     int32
	name    string // in /proc/PID/comm
	program program
	args    []string // in full
	started time.Time
	// unit: it was started by systemd as a service of the host, so that the files it names are the host's.
	unit bool
}

// processList is what the process table shows of kube-proxy.
type processList struct {
	kubeProxies []process // by process id
	// supervisors are k3s and rke2, whose configuration says whether they run a kube-proxy.
	supervisors []process
	kubelets    []process
	// others are further programs that matter, by name, once each.
	others map[string]process
	// visible: these are the processes of the node, so that a kube-proxy among them would have been seen.
	visible bool
}

// readProcesses looks for processes that are a kube-proxy, also inside another program, and for those that tell about one.
//
// The node's processes are in sight when kthreadd is, or a kubelet: kernel threads are in no PID namespace but the
// first, and where the node is itself a container (kind), its kubelet marks its PID namespace. That process 1 is
// another program proves nothing: it may be the pod's own init or its pause process.
func readProcesses(host Host) (processList, error) {
	entries, err := os.ReadDir(host.Proc)
	if err != nil {
		return processList{}, fmt.Errorf("list the processes: %w", err)
	}
	list := processList{visible: showsKernelThreads(host), others: map[string]process{}}
	hidden := false
	for _, entry := range entries {
		pid, err := strconv.ParseInt(entry.Name(), 10, 32)
		if err != nil {
			continue
		}
		found, err := readProcess(host, entry.Name())
		hidden = hidden || err != nil && !hasVanished(err)
		if err != nil || len(found.args) == 0 {
			continue
		}
		found.pid = int32(pid)
		list.add(found)
	}
	list.sort()
	list.visible = list.visible && !hidden
	return list, nil
}

func (l *processList) add(found process) {
	found.program = programOf(found.name, found.args)
	switch found.program {
	case programKubeProxy, programHyperkube, programKubelite:
		l.kubeProxies = append(l.kubeProxies, found)
	case programK3s, programRKE2:
		l.supervisors = append(l.supervisors, found)
	}
	if isKubelet(found) {
		l.kubelets = append(l.kubelets, found)
	}
	l.visible = l.visible || found.name == nameKubelet
	if _, known := l.others[found.name]; !known {
		l.others[found.name] = found
	}
}

// sort orders by process id, since a folder is listed in the order of its names.
func (l *processList) sort() {
	byPID := func(a, b process) int { return cmp.Compare(a.pid, b.pid) }
	slices.SortFunc(l.kubeProxies, byPID)
	slices.SortFunc(l.supervisors, byPID)
	slices.SortFunc(l.kubelets, byPID)
}

// readProcess reads what matters of a process; more than its name only when the name matters. Zombies and kernel threads
// have no arguments.
func readProcess(host Host, pid string) (process, error) {
	comm, err := readProcFile(host, pid, "comm")
	if err != nil {
		return process{}, err
	}
	found := process{name: strings.TrimSuffix(string(comm), "\n")}
	if !matters(found.name) {
		return found, nil
	}
	line, err := readProcFile(host, pid, "cmdline")
	if err != nil || len(line) == 0 {
		return found, err
	}
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
		found.args = append(found.args, string(arg))
	}
	found.started, found.unit = startTime(host, pid), isUnit(host, pid)
	return found, nil
}

// isUnit reports whether a process is in the control group of a service of systemd (man 7 cgroups). What a container engine
// starts is in a scope or a bare group.
func isUnit(host Host, pid string) bool {
	groups, err := readProcFile(host, pid, "cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && strings.Contains(fields[2], "/system.slice/") && strings.HasSuffix(fields[2], ".service") {
			return true
		}
	}
	return false
}

// readProcFile reads at most maxProcFile bytes of a file of a process. It goes without os.File, which asks of each file it
// opens whether it can be polled: a node has hundreds of processes, and each is looked at in each scan.
func readProcFile(host Host, pid, name string) ([]byte, error) {
	path := filepath.Join(host.Proc, pid, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	content := make([]byte, 0, 512)
	for len(content) < maxProcFile {
		content = slices.Grow(content, 512)
		n, err := unix.Read(fd, content[len(content):min(cap(content), maxProcFile)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return content, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return content, nil
		}
		content = content[:len(content)+n]
	}
	return content, nil
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
	report := &offrampv1.KubeProxyProcess{Pid: p.pid, Name: printable([]byte(p.name)), Program: string(p.program)}
	for _, arg := range p.args[:min(len(p.args), maxArgs)] {
		report.Args = append(report.Args, cut(printable([]byte(arg)), maxArgBytes))
	}
	return report
}

// flags are the flags that the process was started with.
func (p process) flags() arguments { return p.args[min(1, len(p.args)):] }
