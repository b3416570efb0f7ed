package lab_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// TestGuests does all that needs a kernel, on each kernel, in one guest per kernel.
func TestGuests(t *testing.T) {
	l := labtest.Start(t)
	for _, kernel := range lab.Kernels() {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			guest := labtest.Boot(t, l, lab.VM{
				Name: "guest-" + strings.ReplaceAll(kernel, ".", "-"), Kernel: kernel,
				Files: []lab.File{{Path: "/usr/local/bin/hello", Text: "#!/bin/sh\necho hello\n", Mode: 0o755}, {Path: "/lib/marker", Text: "x"}},
			})
			t.Run("fresh", func(t *testing.T) { isFresh(t, guest) })
			t.Run("commands", func(t *testing.T) { runsCommands(t, guest) })
			t.Run("files", func(t *testing.T) { movesFiles(t, guest) })
			t.Run("tools", func(t *testing.T) { hasTools(t, guest) })
			scrub(t, guest)
			for _, capture := range []string{"ipvs", "ipvs-then-iptables", "ipvs-then-nftables", "nftables"} {
				t.Run(capture, func(t *testing.T) { restores(t, guest, capture) })
			}
			t.Run("switched off", func(t *testing.T) { isGone(t, guest) })
		})
	}
}

func output(t *testing.T, guest *lab.Guest, argv ...string) string {
	t.Helper()
	out, err := guest.Output(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// isFresh holds the promise that what a test finds loaded, the test loaded.
func isFresh(t *testing.T, guest *lab.Guest) {
	if release := output(t, guest, "uname", "-r"); release != guest.Release || !strings.HasPrefix(release, guest.Kernel+".") {
		t.Errorf("kernel is %s, want %s and a %s", release, guest.Release, guest.Kernel)
	}
	modules := output(t, guest, "cat", "/proc/modules")
	for _, name := range []string{"ip_vs", "ip_set", "ip_tables", "ip6_tables", "nf_tables", "nf_conntrack", "dummy", "x_tables"} {
		if strings.Contains("\n"+modules, "\n"+name+" ") {
			t.Errorf("%s is loaded in a fresh guest", name)
		}
	}
	if links := output(t, guest, "ls", "/sys/class/net"); strings.Join(strings.Fields(links), " ") != "lo mgmt0" {
		t.Errorf("links are %q, want lo and mgmt0", links)
	}
	if name := output(t, guest, "hostname"); name != guest.Name {
		t.Errorf("host name is %s, want %s", name, guest.Name)
	}
	if said := output(t, guest, "sh", "-c", "hello; cat /usr/lib/marker"); said != "hello\nx" {
		t.Errorf("the files that the guest was given say %q", said)
	}
}

func runsCommands(t *testing.T, guest *lab.Guest) {
	result, err := guest.RunInput(t.Context(), []byte("in"), "sh", "-c", "cat; echo err >&2; exit 3")
	if want := (lab.Result{Stdout: "in", Stderr: "err\n", ExitCode: 3}); err != nil || result != want {
		t.Errorf("got %+v (%v), want %+v", result, err, want)
	}
	if _, err := guest.Run(t.Context(), "no-such-program"); err == nil {
		t.Error("a program that is not there ran")
	}
	process, err := guest.Start(t.Context(), lab.Command{Argv: []string{"sh", "-c", "trap 'echo bye; exit 7' TERM; echo up $V; while :; do sleep 0.1; done 2>/dev/null"}, Env: []string{"V=value"}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process to be up", func() bool { return process.Output() == "up value\n" })
	if code, err := process.Stop(10 * time.Second); code != 7 || err != nil || !strings.HasSuffix(process.Output(), "bye\n") {
		t.Errorf("stopped with %d (%v) and %q", code, err, process.Output())
	}
	hung, err := guest.Start(t.Context(), lab.Command{Argv: []string{"sh", "-c", "trap '' TERM; echo up; sleep 1000; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process to be up", func() bool { return hung.Output() == "up\n" })
	if code, err := hung.Stop(time.Second); code != 137 || err != nil {
		t.Errorf("killed with %d (%v), want 137", code, err)
	}
	waitFor(t, "its children to be gone", func() bool { return !strings.Contains(output(t, guest, "ps"), "sleep 1000") })
}

func movesFiles(t *testing.T, guest *lab.Guest) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	if err := guest.Put(t.Context(), "/var/new/folder/file", bytes.NewReader(large), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := guest.Get(t.Context(), "/var/new/folder/file")
	if err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back (%v), want %d", len(got), err, len(large))
	}
	if _, err := guest.Get(t.Context(), "/no/such/file"); err == nil {
		t.Error("a file that is not there was read")
	}
	if text, err := guest.Get(t.Context(), "/proc/sys/kernel/ostype"); string(text) != "Linux\n" {
		t.Errorf("a file of /proc reads %q (%v)", text, err)
	}
}

// hasTools uses each native tool for what the captures need of it, among that what LAB.md says went wrong before.
func hasTools(t *testing.T, guest *lab.Guest) {
	for _, line := range []string{
		"modprobe ip_vs && cat /proc/net/ip_vs",
		"ipvsadm -A -t 192.0.2.1:80 -s rr && ipvsadm -Sn | grep 192.0.2.1",
		"ipset create s hash:ip,port && ipset add s 192.0.2.1,tcp:80 && ipset test s 192.0.2.1,tcp:80",
		"iptables-nft -A INPUT -m set --match-set s dst,dst -m comment --comment c -j ACCEPT",
		"iptables-nft -A INPUT -m ipvs --vproto 6 --vaddr 192.0.2.20 --vport 80 -j DROP",
		"iptables-nft -t nat -A OUTPUT -m statistic --mode random --probability 0.5 -j MARK --set-xmark 0x4000/0x4000",
		"iptables-legacy -t nat -A POSTROUTING -j MASQUERADE --random-fully && iptables-legacy-save | grep random-fully",
		"ip6tables-nft -A INPUT -p udp --dport 53 -j REJECT && ip6tables-legacy -A INPUT -j ACCEPT",
		"iptables -V | grep nf_tables && nft list ruleset | grep -c chain",
		"ip link add d0 type dummy && ip link add v0 type veth peer name v1 && ip -br link",
		"conntrack -L",
	} {
		if result, err := guest.Run(t.Context(), "sh", "-c", line); err != nil || result.ExitCode != 0 {
			t.Errorf("%s: exit status %d (%v): %s%s", line, result.ExitCode, err, result.Stdout, result.Stderr)
		}
	}
}

// scrub makes a guest empty again. Only a test that owns the whole machine may do it so.
func scrub(t *testing.T, guest *lab.Guest) {
	t.Helper()
	output(t, guest, "sh", "-c", `
		ipvsadm -C
		for t in $(cat /proc/net/ip_tables_names); do iptables-legacy -t $t -F; iptables-legacy -t $t -X; done
		for t in $(cat /proc/net/ip6_tables_names); do ip6tables-legacy -t $t -F; ip6tables-legacy -t $t -X; done
		nft flush ruleset && ipset destroy
		for l in d0 v0 eth0 kube-ipvs0; do ip link del $l; done 2>/dev/null; true`)
}

func restores(t *testing.T, guest *lab.Guest, capture string) {
	scrub(t, guest)
	began := time.Now()
	if err := lab.Restore(t.Context(), guest, capture); err != nil {
		t.Fatal(err)
	}
	t.Logf("restored in %s", time.Since(began).Round(time.Millisecond))
	if capture == "ipvs" {
		if err := lab.Restore(t.Context(), guest, capture); err == nil {
			t.Error("restoring onto a node that has the state already was no error")
		}
	}
	process, err := lab.StandIn(t.Context(), guest, capture)
	if err != nil {
		t.Fatal(err)
	}
	answersAsKubeProxy(t, guest, process)
	if code, err := process.Stop(10 * time.Second); code != 0 || err != nil {
		t.Errorf("the stand-in stopped with %d (%v): %s", code, err, process.Output())
	}
}

func answersAsKubeProxy(t *testing.T, guest *lab.Guest, process *lab.Process) {
	t.Helper()
	// It answers before what it printed has come through.
	said := func() bool { return strings.Contains(process.Output(), "stand-in") }
	for wait := 0; !said() && wait < 100; wait++ {
		time.Sleep(100 * time.Millisecond)
	}
	if !said() {
		t.Errorf("the stand-in does not say what it is: %q", process.Output())
	}
	pid := output(t, guest, "pidof", "kube-proxy")
	if comm := output(t, guest, "cat", fmt.Sprintf("/proc/%s/comm", pid)); comm != "kube-proxy" {
		t.Errorf("the stand-in's process is called %q", comm)
	}
	mode := output(t, guest, "wget", "-qO-", "http://127.0.0.1:10249/proxyMode")
	if command := output(t, guest, "sh", "-c", fmt.Sprintf("tr '\\0' ' ' < /proc/%s/cmdline", pid)); !strings.Contains(command, "--config /etc/kp/"+mode+".conf") {
		t.Errorf("mode %s with command line %q", mode, command)
	}
	if config := output(t, guest, "cat", "/etc/kp/"+mode+".conf"); !strings.Contains(config, "\nmode: "+mode) {
		t.Errorf("mode %s with configuration %q", mode, config)
	}
	var health struct{ CurrentTime time.Time }
	if err := json.Unmarshal([]byte(output(t, guest, "wget", "-qO-", "http://127.0.0.1:10256/healthz")), &health); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(health.CurrentTime).Abs(); age > time.Minute {
		t.Errorf("the stand-in's time is %s off", age)
	}
}

func isGone(t *testing.T, guest *lab.Guest) {
	process, err := guest.Start(t.Context(), lab.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Close(); err != nil {
		t.Error(err)
	}
	if _, err := process.Wait(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a process in a guest that was switched off ended with %v", err)
	}
	if _, err := guest.Run(t.Context(), "true"); err == nil {
		t.Error("a guest that is switched off runs commands")
	}
	if running(guest.PID()) {
		t.Error("the virtual machine's process is still there")
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}
