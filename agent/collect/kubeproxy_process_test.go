package collect

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	// Lines of /proc/PID/stat: the ninth field has the flags, the 22nd the start in ticks.
	kthreaddStat = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 24 0 0\n"
	programStat  = "2 (kthreadd) S 1 0 0 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 24 0 0\n"
	proxyStat    = "417 (kube-proxy) S 1 417 417 0 -1 1077936384 0 0 0 0 5 3 0 0 20 0 9 0 12345 0 0\n"
)

// hostProcesses is a process table of a node, with the files of more processes.
func hostProcesses(more map[string]string) map[string]string {
	all := map[string]string{
		"proc/stat":      "btime 1796056784\n",
		"proc/1/comm":    "systemd\n",
		"proc/1/cmdline": "/sbin/init\x00",
		"proc/2/comm":    "kthreadd\n",
		"proc/2/cmdline": "",
		"proc/2/stat":    kthreaddStat,
		"proc/self/comm": "kube-proxy\n", // not a number: no process
	}
	maps.Copy(all, more)
	return all
}

func proxyProcess(args ...string) map[string]string {
	return map[string]string{
		"proc/417/comm":    "kube-proxy\n",
		"proc/417/cmdline": strings.Join(append([]string{"/usr/local/bin/kube-proxy"}, args...), "\x00") + "\x00",
		"proc/417/stat":    proxyStat,
	}
}

func TestReadProcesses(t *testing.T) {
	list, err := readProcesses(hostOf(t, hostProcesses(proxyProcess("--config=/etc/kp.conf", "-v", "2"))))
	if err != nil || !list.visible || len(list.kubeProxies) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	got := list.kubeProxies[0]
	if diff := cmp.Diff([]string{"/usr/local/bin/kube-proxy", "--config=/etc/kp.conf", "-v", "2"}, got.args); diff != "" || got.pid != 417 {
		t.Errorf("process %d\n%s", got.pid, diff)
	}
	if want := time.Unix(1796056784, 0).Add(123450 * time.Millisecond); !got.started.Equal(want) {
		t.Errorf("started at %v, want %v", got.started, want)
	}
}

func TestReadProcessesThatAreNone(t *testing.T) {
	for name, more := range map[string]map[string]string{
		"a zombie":                {"proc/417/comm": "kube-proxy\n", "proc/417/cmdline": ""},
		"one that begins so":      {"proc/417/comm": "kube-proxy-old\n", "proc/417/cmdline": "kube-proxy-old\x00"},
		"one that ends so":        {"proc/417/comm": "my-kube-proxy\n", "proc/417/cmdline": "kube-proxy\x00"},
		"an argument":             {"proc/417/comm": "grep\n", "proc/417/cmdline": "grep\x00kube-proxy\x00"},
		"vanished after its name": {"proc/417/comm": "kube-proxy\n"},
		"vanished before":         {"proc/417/status": ""},
	} {
		list, err := readProcesses(hostOf(t, hostProcesses(more)))
		if err != nil || len(list.kubeProxies) != 0 || !list.visible {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

func TestHostProcessesAreVisible(t *testing.T) {
	for name, test := range map[string]struct {
		tree map[string]string
		want bool
	}{
		"a node":                  {hostProcesses(nil), true},
		"a pod by itself":         {map[string]string{"proc/1/comm": "offramp-agent\n", "proc/1/cmdline": "a\x00"}, false},
		"a pod with its pause":    {map[string]string{"proc/1/comm": "pause\n", "proc/1/cmdline": "/pause\x00", "proc/7/comm": "x\n"}, false},
		"a pod with an init":      {map[string]string{"proc/1/comm": "systemd\n", "proc/1/cmdline": "/sbin/init\x00"}, false},
		"a program posing as one": {map[string]string{"proc/1/comm": "x\n", "proc/2/comm": "kthreadd\n", "proc/2/stat": programStat}, false},
		"a stat that is cut":      {map[string]string{"proc/2/stat": "2 (kthreadd) S 0"}, false},
		"a node in a container": {map[string]string{
			"proc/1/comm": "systemd\n", "proc/1/cmdline": "/sbin/init\x00", "proc/90/comm": "kubelet\n", "proc/90/cmdline": "kubelet\x00",
		}, true},
		"a kubelet that is dead": {map[string]string{"proc/1/comm": "x\n", "proc/90/comm": "kubelet\n", "proc/90/cmdline": ""}, false},
	} {
		if list, err := readProcesses(hostOf(t, test.tree)); err != nil || list.visible != test.want {
			t.Errorf("%s: visible %v, %v; want %v", name, list.visible, err, test.want)
		}
	}
}

// A process that may not be looked at (hidepid) could be a kube-proxy.
func TestAHiddenProcessMakesTheTableIncomplete(t *testing.T) {
	host := hostOf(t, hostProcesses(proxyProcess()))
	// Reading a folder fails with EISDIR, which is as good as EACCES and works for root.
	if err := os.MkdirAll(filepath.Join(host.Proc, "500/comm"), 0o755); err != nil {
		t.Fatal(err)
	}
	list, err := readProcesses(host)
	if err != nil || list.visible || len(list.kubeProxies) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestReadProcessesWithoutProc(t *testing.T) {
	if _, err := readProcesses(hostOf(t, nil)); err == nil {
		t.Error("no proc file system, and no error")
	}
}

func TestStatFieldsOfAnOddName(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/9/stat": "9 (a) b (c) ) S 1 2\n"})
	if diff := cmp.Diff([]string{"S", "1", "2"}, statFields(host, "9")); diff != "" {
		t.Error(diff)
	}
}

func TestArgumentsLast(t *testing.T) {
	for line, want := range map[string]string{
		"--proxy-mode=ipvs":                       "ipvs yes",
		"--proxy-mode ipvs":                       "ipvs yes",
		"--proxy-mode=iptables --proxy-mode ipvs": "ipvs yes",
		"--proxy-mode=":                           " yes",
		"--proxy-mode":                            " no", // pflag refuses to start so
		"--proxy-mode-x=ipvs":                     " no",
		"-v 2":                                    " no",
		"-- --proxy-mode=ipvs":                    " no",
		"--v --proxy-mode=ipvs":                   "ipvs yes",
	} {
		value, found := arguments(strings.Fields(line)).last("proxy-mode")
		if got := value + map[bool]string{true: " yes", false: " no"}[found]; got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestProcessReportIsBounded(t *testing.T) {
	args := make([]string, 40)
	args[0], args[1] = strings.Repeat("ä", 200), "\xff"
	report := process{pid: 7, args: args}.report()
	if len(report.GetArgs()) != 32 || len(report.GetArgs()[0]) != 256 || report.GetArgs()[1] != `\xff` {
		t.Errorf("%d arguments, the first of %d bytes, the second %q", len(report.GetArgs()), len(report.GetArgs()[0]), report.GetArgs()[1])
	}
}
