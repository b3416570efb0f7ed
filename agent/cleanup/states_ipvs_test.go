package cleanup_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/nstest"
)

// States that need ip_vs and dummy links: in the guests of the lab.

// enterIPVS makes a node with addresses, the zoo and virtual servers of others. It returns what the native tools print of it.
func enterIPVS(t *testing.T) (string, bool) {
	t.Helper()
	if !nstest.Enter(t) {
		return "", false
	}
	needNetfilter(t)
	return ipvsNode(t), true
}

// vips makes kube-ipvs0 with addresses.
func vips(t *testing.T, addresses ...string) {
	t.Helper()
	run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	for _, address := range addresses {
		run(t, "", "ip", "addr", "add", address, "dev", "kube-ipvs0")
	}
}

// pod is a network namespace behind a veth pair, with an address in the pod network.
type pod struct{ pid int }

// newPod makes a pod that the node routes to; extra networks are local to it.
func newPod(t *testing.T, name, address, gateway string, extra ...string) pod {
	t.Helper()
	nstest.NeedKernel(t, "veth")
	command := exec.CommandContext(t.Context(), "unshare", "-n", "sleep", "1000")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	p := pod{command.Process.Pid}
	here, _ := os.Readlink("/proc/self/ns/net")
	for range 500 {
		if there, err := os.Readlink(p.space()); err == nil && there != here {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	pid := strconv.Itoa(p.pid)
	run(t, "", "ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
	run(t, "", "ip", "link", "set", name+"p", "netns", pid)
	run(t, "", "ip", "link", "set", name, "addrgenmode", "none") // its IPv6 address would come at a time of its own
	run(t, "", "ip", "addr", "add", gateway+"/32", "dev", name)
	run(t, "", "ip", "link", "set", name, "up")
	run(t, "", "ip", "route", "add", address+"/32", "dev", name)
	for _, network := range extra {
		run(t, "", "ip", "route", "add", network, "via", address, "dev", name, "onlink")
	}
	p.run(t, "ip", "link", "set", "lo", "up")
	p.run(t, "ip", "addr", "add", address+"/32", "dev", name+"p")
	p.run(t, "ip", "link", "set", name+"p", "up")
	p.run(t, "ip", "route", "add", gateway+"/32", "dev", name+"p")
	p.run(t, "ip", "route", "add", "default", "via", gateway)
	for _, network := range extra {
		p.run(t, "ip", "route", "add", "local", network, "dev", "lo")
	}
	run(t, "", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	return p
}

func (p pod) space() string { return "/proc/" + strconv.Itoa(p.pid) + "/ns/net" }

func (p pod) run(t *testing.T, args ...string) {
	t.Helper()
	run(t, "", append([]string{"nsenter", "-t", strconv.Itoa(p.pid), "-n"}, args...)...)
}

// do runs f on a thread of the pod's; sockets that it opens stay the pod's. It is never the first thread, whose namespace is
// what /proc/self/net shows.
func (p pod) do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			result <- p.do(f) // another goroutine runs on another thread as long as this one is held
			return
		}
		space, err := os.Open(p.space())
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			_ = space.Close()
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

func (p pod) dial(address string) (connection net.Conn, err error) {
	err = p.do(func() (err error) {
		connection, err = net.DialTimeout("tcp", address, 3*time.Second)
		return err
	})
	return connection, err
}

// echo serves on a port of the pod's, or of the node's where the pod is none, and says from where the last client came.
func echo(t *testing.T, in *pod, address string) *atomic.Value {
	t.Helper()
	last := &atomic.Value{}
	last.Store("")
	var listener net.Listener
	listen := func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}
	err := listen
	if in != nil {
		err = func() error { return in.do(listen) }
	}
	if err := err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			last.Store(netip.MustParseAddrPort(connection.RemoteAddr().String()).Addr().Unmap().String())
			go func() { _, _ = io.Copy(connection, connection); _ = connection.Close() }()
		}
	}()
	return last
}

// The main case: iptables mode runs and is in sync, all of ipvs mode is left. What iptables mode made stays line by line.
func TestState02IptablesModeBesideAllOfIPVS(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	kubeProxyIn(t, "ipvs-then-iptables", "nft")
	foreign := sorted(run(t, "", "ipvsadm", "-Sn"))
	addIPVS(t, "ipvs-then-iptables")
	services := func() string {
		saved := run(t, "", "iptables-nft-save") + run(t, "", "ip6tables-nft-save")
		lines := regexp.MustCompile(`(?m)^(:|-A )KUBE-((SVC|SEP|EXT|SVL|FW)-\S+|PROXY-CANARY|SERVICES|MARK-MASQ|POSTROUTING|FORWARD|NODEPORTS|FIREWALL|EXTERNAL-SERVICES|PROXY-FIREWALL) .*$`)
		return strings.Join(lines.FindAllString(counters().ReplaceAllString(saved, ""), -1), "\n")
	}
	before := services()
	mustClean(t, newNode(t).as("ipvs-then-iptables").apply())
	if after := services(); after != before || strings.Count(after, "KUBE-SVC-") < 50 {
		t.Errorf("%d bytes of iptables mode's rules before, %d after", len(before), len(after))
	}
	if left := sorted(run(t, "", "ipvsadm", "-Sn")); left != foreign {
		t.Errorf("virtual servers:\n%s", left)
	}
	for _, part := range []string{run(t, "", "ip", "-o", "link"), run(t, "", "ip", "route", "show", "table", "all"), run(t, "", "ip", "-6", "route", "show", "table", "all")} {
		if strings.Contains(part, "kube-ipvs0") {
			t.Errorf("the link is left: %s", part)
		}
	}
	if sets := run(t, "", "ipset", "list", "-n"); strings.Contains("\n"+sets, "\nKUBE-CLUSTER-IP\n") || strings.Contains(sets, "KUBE-6-") {
		t.Errorf("sets are left: %s", sets)
	}
}

func counters() *regexp.Regexp { return regexp.MustCompile(`\[\d+:\d+\]`) }

// Only the link outlived an uninstaller.
func TestState10OnlyTheLink(t *testing.T) {
	before, inside := enterIPVS(t)
	if !inside {
		return
	}
	vips(t)
	n := newNode(t)
	if plan := n.plan(); len(plan.GetOperations()) != 1 || plan.GetOperations()[0].GetDeleteLink().GetName() != "kube-ipvs0" {
		t.Errorf("the plan is %v, want the link alone", plan.GetOperations())
	}
	n.mustLeave(before)
	vips(t, "10.96.0.10/32", "10.96.0.77/32", "fd00:10:96::a/128")
	n.mustLeave(before)
}

// An old Service address on the link is the host's own: a pod reaches through it what listens on the wildcard address. With
// the link that is gone.
func TestState11HostIsExposed(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	p := newPod(t, "veth11", "10.244.0.5", "10.244.0.1")
	echo(t, nil, "0.0.0.0:2222")
	before := look(t)
	vips(t, "10.96.0.77/32")
	connection, err := p.dial("10.96.0.77:2222")
	if err != nil {
		t.Fatalf("the host is not exposed, so that nothing can be shown: %v", err)
	}
	_ = connection.Close()
	newNode(t).mustLeave(before)
	if connection, err := p.dial("10.96.0.77:2222"); err == nil {
		_ = connection.Close()
		t.Error("the host is still reached through the old address")
	}
}

// The host's own traffic to a Service carries the Service's address as its source while that is on the link.
func TestState12SourceIsTheServices(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	p := newPod(t, "veth12", "10.244.0.5", "10.244.0.1")
	seen := echo(t, &p, "10.244.0.5:8080")
	run(t, `table ip kube-proxy { chain services { type nat hook output priority -100; ip daddr 10.96.0.10 tcp dport 80 dnat to 10.244.0.5:8080; }; }
		table ip6 kube-proxy { chain services { }; }`, "nft", "-f", "-")
	before := look(t)
	vips(t, "10.96.0.10/32")
	if from := sourceSeen(t, seen); from != "10.96.0.10" {
		t.Fatalf("the pod sees %s, want the Service's address, or nothing can be shown", from)
	}
	newNode(t).as("nftables").mustLeave(before)
	if from := sourceSeen(t, seen); from != "10.0.2.15" && from != "10.244.0.1" {
		t.Errorf("the pod sees %s, want an address of the node", from)
	}
	if route := run(t, "", "ip", "route", "get", "10.96.0.10"); strings.HasPrefix(route, "local") {
		t.Errorf("the Service's address is still local: %s", route)
	}
}

// sourceSeen connects to the Service and says from where the pod saw it come.
func sourceSeen(t *testing.T, seen *atomic.Value) string {
	t.Helper()
	connection, err := net.DialTimeout("tcp", "10.96.0.10:80", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	echoes(t, connection)
	return seen.Load().(string) //nolint:forcetypeassert // echo stores nothing else
}

// Shared chains carry the traffic of iptables mode: requests from the node and from a pod, one new connection after the
// other, see no failure while all of ipvs mode goes.
func TestState15RequestsThroughSharedChains(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	kubeProxyIn(t, "ipvs-then-iptables", "nft")
	addIPVS(t, "ipvs-then-iptables")
	server := newPod(t, "veth15s", "10.244.255.5", "10.244.255.1", "10.244.0.0/17")
	client := newPod(t, "veth15c", "10.244.254.5", "10.244.254.1")
	echo(t, &server, "0.0.0.0:8080")
	service := serviceOf(t, "default/web:http")
	ask := map[string]func() (net.Conn, error){
		"node": func() (net.Conn, error) { return net.DialTimeout("tcp", service, 3*time.Second) },
		"pod":  func() (net.Conn, error) { return client.dial(service) },
	}
	stop := make(chan struct{})
	done := make(chan struct{}, len(ask))
	var asked, failed atomic.Int64
	for from, dial := range ask {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				asked.Add(1)
				connection, err := dial()
				if err != nil {
					failed.Add(1)
					t.Logf("from the %s: %v", from, err)
					continue
				}
				echoes(t, connection)
				_ = connection.Close()
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	time.Sleep(2 * time.Second)
	n := newNode(t).as("ipvs-then-iptables")
	// The requests themselves are connections through IPVS and sockets with a VIP: those from before may be cut.
	n.options.Draining = cleanup.Draining{MaxConnections: 1000, Wait: 30 * time.Second}
	mustClean(t, n.apply())
	time.Sleep(2 * time.Second)
	close(stop)
	<-done
	<-done
	t.Logf("%d requests, %d failed", asked.Load(), failed.Load())
	if failed.Load() > 0 || asked.Load() < 20 {
		t.Errorf("%d of %d requests failed", failed.Load(), asked.Load())
	}
}

// serviceOf is the address of a Service's cluster IP in the capture.
func serviceOf(t *testing.T, name string) string {
	t.Helper()
	found := regexp.MustCompile(`-A KUBE-SERVICES -d (\S+)/32 -p tcp -m comment --comment "` + name + ` cluster IP" -m tcp --dport (\d+)`).
		FindStringSubmatch(fileOf(t, "ipvs-then-iptables", "iptables-nft-save.txt"))
	if found == nil {
		t.Fatalf("no Service %s in the capture", name)
	}
	return found[1] + ":" + found[2]
}

// A node that left its cluster: everything is there, no kubelet, no kube-proxy, no API. Nothing is done before a person says
// that none is to run; then everything goes, offline.
func TestState19NoLongerInACluster(t *testing.T) {
	before, inside := enterIPVS(t)
	if !inside {
		return
	}
	kubeProxy(t, "ipvs-then-iptables")
	addIPVS(t, "ipvs-then-iptables")
	n := newNode(t)
	n.unasserted = true
	n.mustRefuse(cleanup.GuardModeUnknown)
	n.unasserted = false
	n.mustLeave(before)
}

// An administrator is connected to the node while the shield of the host's ports and the link go.
func TestState21AdminConnectionSurvives(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	admin := newPod(t, "veth21", "198.51.100.5", "198.51.100.1")
	before := look(t)
	echo(t, nil, "10.0.2.15:2222")
	kubeProxy(t, "ipvs")
	addIPVS(t, "ipvs")
	connection, err := admin.dial("10.0.2.15:2222")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	echoes(t, connection)
	newNode(t).mustLeave(before)
	echoes(t, connection)
	again, err := admin.dial("10.0.2.15:2222")
	if err != nil {
		t.Fatalf("a new connection after the clean-up: %v", err)
	}
	_ = again.Close()
}

// Calico takes a node for one in ipvs mode as long as the link is there, and restarts when it goes: the plan says so, and
// Calico's own chains and sets stay.
func TestState22CalicoIsToldOf(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	run(t, "create cali40masq-ipam-pools hash:net family inet hashsize 1024 maxelem 65536\nadd cali40masq-ipam-pools 10.244.0.0/16\n", "ipset", "restore")
	run(t, "*filter\n:cali-FORWARD - [0:0]\n:cali-tw-cali1234 - [0:0]\n-A FORWARD -m comment --comment \"cali:wUHhoiAYhphO9Mso\" -j cali-FORWARD\n-A cali-FORWARD -o cali+ -j cali-tw-cali1234\nCOMMIT\n",
		"iptables-nft-restore", "--noflush")
	before := look(t)
	vips(t, "10.96.0.10/32")
	n := newNode(t)
	if plan := n.plan(); firstOf(plan, "Felix") < 0 {
		t.Errorf("the plan does not tell of Felix: %v", plan.GetOperations())
	}
	n.mustLeave(before)
}

// An established connection through a virtual server: the clean-up refuses, or waits for it, and then goes on.
func TestState33EstablishedConnection(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	server := newPod(t, "veth33s", "10.244.1.5", "10.244.1.1")
	client := newPod(t, "veth33c", "10.244.2.5", "10.244.2.1")
	echo(t, &server, "10.244.1.5:8080")
	before := look(t)
	vips(t, "10.96.0.10/32")
	run(t, "create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n", "ipset", "restore")
	run(t, "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.1.5:8080 -m -w 1\n", "ipvsadm", "-R")
	connection, err := client.dial("10.96.0.10:80")
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, connection)
	n := newNode(t)
	n.mustRefuse(cleanup.GuardConnections)
	echoes(t, connection)
	n.options.Draining = cleanup.Draining{Wait: 2 * time.Second}
	n.mustRefuse(cleanup.GuardNotDrained)
	echoes(t, connection)
	n.options.Draining = cleanup.Draining{Wait: time.Minute}
	time.AfterFunc(3*time.Second, func() { _ = connection.Close() })
	n.mustLeave(before)
}

// keepalived's virtual server (wlc, direct routing) is in the same table: only the Service's goes.
func TestState49KeepalivedBesideServices(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	run(t, "-A -t 192.0.2.100:80 -s wlc -p 50\n-a -t 192.0.2.100:80 -r 192.0.2.101:80 -g -w 1\n-a -t 192.0.2.100:80 -r 192.0.2.102:80 -g -w 3\n", "ipvsadm", "-R")
	run(t, "", "ip", "addr", "add", "192.0.2.100/32", "dev", "eth0")
	before := look(t)
	kubeProxy(t, "ipvs")
	addIPVS(t, "ipvs")
	newNode(t).mustLeave(before)
	if !strings.Contains(before, "-A -t 192.0.2.100:80 -s wlc -p 50") {
		t.Error("keepalived's virtual server was never there")
	}
}

// On some distributions a virtual server is the way to the API server. One that is no Service's stays; where a kubeconfig
// names one that is, the clean-up refuses.
func TestState50WayToTheAPIServer(t *testing.T) {
	if _, inside := enterIPVS(t); !inside {
		return
	}
	run(t, "-A -t 10.103.97.2:6443 -s rr\n-a -t 10.103.97.2:6443 -r 192.0.2.22:6443 -m -w 1\n-a -t 10.103.97.2:6443 -r 192.0.2.23:6443 -m -w 1\n", "ipvsadm", "-R")
	before := look(t)
	kubeProxy(t, "ipvs")
	addIPVS(t, "ipvs")
	n := newNode(t)
	service := serviceOf(t, "default/web:http")
	path := filepath.Join(n.root, "etc", "kubernetes", "kubelet.conf")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	write := func(server string) {
		t.Helper()
		text := "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://" + server + "\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(service)
	if evidence := n.mustRefuse(cleanup.GuardAPIServer); !strings.Contains(evidence, service) {
		t.Errorf("it names %q, not %s", evidence, service)
	}
	write("10.103.97.2:6443")
	n.mustLeave(before)
}
