package cleanup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/nstest"
)

// The real programs make their state and keep running while what kube-proxy left beside it goes: Docker's daemon, firewalld,
// keepalived with VRRP, and the CNI plugin portmap. What the native tools print of theirs is the same afterwards.
func TestZooOfRealPrograms(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	nstest.NeedKernel(t, "veth", "bridge")
	nstest.NeedTool(t, "dockerd", "docker", "firewalld", "firewall-cmd", "dbus-daemon", "keepalived", "/usr/lib/cni/portmap")
	ownRun(t)
	zoo(t)
	run(t, "", "nft", "delete", "table", "inet", "firewalld")
	startFirewalld(t)
	startDocker(t)
	startKeepalived(t)
	mapPort(t)
	before := lookPrograms(t)
	for _, made := range []string{"DOCKER-ISOLATION-STAGE-1", "CNI-HOSTPORT-DNAT", "filter_IN_public", "192.0.2.100/32", "table ip keepalived"} {
		if !strings.Contains(before, made) {
			t.Errorf("%s is not there: the program that makes it did not", made)
		}
	}
	for _, capture := range []string{"ipvs-then-iptables", "iptables-sync-failed"} {
		kubeProxy(t, capture)
		n := newNode(t)
		// Docker has FORWARD drop what nothing accepts, and kube-proxy's chain accepts what is forwarded to pods.
		if evidence := n.mustRefuse(cleanup.GuardAcceptUnderDrop); !strings.Contains(evidence, "KUBE-FORWARD") {
			t.Errorf("it names %q, not KUBE-FORWARD", evidence)
		}
		n.options.Overrides = map[string]string{cleanup.GuardAcceptUnderDrop: "a test"}
		mustClean(t, n.apply())
		if diff := cmp.Diff(before, lookPrograms(t)); diff != "" {
			t.Errorf("%s: before kube-proxy (-), after the clean-up (+):\n%.4000s", capture, diff)
		}
	}
}

// ownRun gives the namespace a /run and cgroups of its own.
func ownRun(t *testing.T) {
	t.Helper()
	for at, kind := range map[string]string{"/run": "tmpfs", "/sys/fs/cgroup": "cgroup2"} {
		if err := unix.Mount(kind, at, kind, 0, ""); err != nil {
			t.Fatalf("mount %s: %v", at, err)
		}
	}
}

// lookPrograms is what look sees, and all of nf_tables but the tables of iptables-nft.
func lookPrograms(t *testing.T) string {
	t.Helper()
	return look(t) + run(t, "", "nft", "-s", "list", "table", "ip", "keepalived")
}

// background runs a program until the test ends, and waits until a command succeeds.
func background(t *testing.T, ready []string, argv ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(unix.SIGTERM)
		_ = command.Wait()
		_ = log.Close()
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if _, err := tryTool(t, ready...); err == nil {
			return
		}
	}
	said, _ := os.ReadFile(log.Name())
	t.Fatalf("%s is not up after a minute: %s", argv[0], said)
}

func startFirewalld(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/run/dbus", "/run/firewalld"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	background(t, []string{"test", "-S", "/run/dbus/system_bus_socket"}, "dbus-daemon", "--system", "--nofork", "--nopidfile")
	background(t, []string{"firewall-cmd", "--state"}, "firewalld", "--nofork", "--nopid")
	run(t, "", "firewall-cmd", "--add-port=8080/tcp")
}

func startDocker(t *testing.T) {
	t.Helper()
	const dir, socket = "/run/offramp-docker", "unix:///run/offramp-docker/sock"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	background(t, []string{"docker", "-H", socket, "info"}, "dockerd", "--data-root", dir+"/data", "--exec-root", "/run/docker",
		"--pidfile", dir+"/pid", "-H", socket, "--storage-driver", "vfs")
}

const keepalivedConfiguration = `global_defs {
	router_id node-0
	nftables keepalived
}
vrrp_instance one {
	state MASTER
	interface eth0
	virtual_router_id 51
	priority 100
	advert_int 1
	no_accept
	virtual_ipaddress {
		192.0.2.100/32 dev eth0
	}
}
`

func startKeepalived(t *testing.T) {
	t.Helper()
	run(t, "link add eth0 type veth peer name peer0\naddress add 192.0.2.10/24 dev eth0\nlink set eth0 up\nlink set peer0 up\n", "ip", "-batch", "-")
	path := filepath.Join(t.TempDir(), "keepalived.conf")
	if err := os.WriteFile(path, []byte(keepalivedConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	background(t, []string{"sh", "-c", "ip address show dev eth0 | grep -qF 192.0.2.100/32 && nft list table ip keepalived"},
		"keepalived", "-n", "-l", "-f", path)
}

// mapPort has portmap map a port of the host to a pod's, as a container runtime does.
func mapPort(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/usr/lib/cni/portmap")
	command.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=abcdef", "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni")
	command.Stdin = strings.NewReader(`{"cniVersion":"0.4.0","name":"net","type":"portmap","capabilities":{"portMappings":true},"snat":true,
		"runtimeConfig":{"portMappings":[{"hostPort":8081,"containerPort":80,"protocol":"tcp"}]},
		"prevResult":{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","sandbox":"/proc/self/ns/net"}],
			"ips":[{"version":"4","address":"10.244.0.5/24","interface":0}]}}`)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("portmap: %v: %s", err, out)
	}
}
