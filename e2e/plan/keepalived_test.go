package plan_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
)

// No VRRP is needed for virtual servers: keepalived then runs its checkers alone, and takes the servers out when it ends.
const keepalivedServers = `global_defs {
	router_id node-0
}
virtual_server 192.0.2.240 6443 {
	delay_loop 600
	lb_algo wlc
	lb_kind NAT
	protocol TCP
	real_server 192.0.2.242 6443 {
		weight 2
	}
	real_server 192.0.2.243 6443 {
		weight 1
	}
}
virtual_server fwmark 9 {
	lb_algo rr
	lb_kind DR
	real_server 192.0.2.244 443 {
		weight 1
	}
}
`

// The virtual servers that a real keepalived keeps in the same IPVS table are the same before and after.
func TestRealKeepalivedOnIPVS(t *testing.T) {
	program, err := exec.LookPath("keepalived")
	if err != nil {
		t.Skip("no keepalived on this host to put into the guest")
	}
	l := labtest.Start(t)
	files := append(withLibraries(t, program), lab.File{Path: agent, Host: programs.Agent(), Mode: 0o755},
		lab.File{Path: "/etc/keepalived/keepalived.conf", Text: keepalivedServers})
	g := labtest.Boot(t, l, lab.VM{Name: "keepalived", Kernel: "6.1", Disk: 64, Files: files})
	if err := g.MountDisk(t.Context(), "/var/lib/offramp"); err != nil {
		t.Fatal(err)
	}
	if err := lab.Restore(t.Context(), g, "ipvs-then-iptables"); err != nil {
		t.Fatal(err)
	}
	// ip_vs is loaded by now; keepalived asks for it by itself otherwise.
	keepalived, err := g.Start(t.Context(), lab.Command{Argv: []string{program, "-n", "-l", "-D"}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := g.Run(t.Context(), "sh", "-c", "for i in $(seq 60); do ipvsadm -Sn | grep -q -e '-a -f 9' && exit 0; sleep 1; done; exit 1")
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("keepalived made no virtual servers: %v: %s", err, keepalived.Output())
	}
	before := output(t, g, keepalivedLines)
	if strings.Count(before, "\n") != 5 {
		t.Fatalf("before:\n%s%s", before, keepalived.Output())
	}
	for _, run := range []struct{ target, running string }{{"iptables", "ipvs-then-iptables"}, {"none", ""}} {
		cleansBeside(t, g, run.target, run.running)
		if after := output(t, g, keepalivedLines); after != before {
			t.Errorf("%s: before:\n%safter:\n%s", run.target, before, after)
		}
	}
	if all := output(t, g, "ipvsadm -Sn | sort"); all != before {
		t.Errorf("left beside keepalived's:\n%s", all)
	}
	said := keepalived.Output()
	stop(t, keepalived)
	if regexp.MustCompile(`(?i)ipvs.*(error|fail|no such)`).MatchString(said) {
		t.Errorf("keepalived complains: %s", said)
	}
	if left := output(t, g, "ipvsadm -Sn"); left != "" {
		t.Errorf("keepalived could not take its servers out:\n%s", left)
	}
}

const keepalivedLines = "ipvsadm -Sn | grep -e 192.0.2.24 -e '-f 9' | sort"

// cleansBeside cleans for a target and fails unless it goes through.
func cleansBeside(t *testing.T, g *lab.Guest, target, running string) {
	t.Helper()
	flags := []string{"--target", target}
	if running == "" {
		flags = append(flags, "--assert-no-kube-proxy", nobody)
	} else {
		proxy, err := lab.StandIn(t.Context(), g, running)
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, proxy)
	}
	done, exit := applyOn(t, g, flags...)
	for try := 0; running != "" && exit == 4 && try < 5; try++ {
		done, exit = applyOn(t, g, flags...)
	}
	if exit != 0 {
		t.Errorf("%s: exit code %d, refused by %v", target, exit, done.GetRefusedBy())
	}
}

// withLibraries are a program of the host and the libraries that it needs, as files for a guest.
func withLibraries(t *testing.T, program string) []lab.File {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []lab.File{{Path: program, Host: program, Mode: 0o755}}
	for _, library := range regexp.MustCompile(`(?:=> )?(/\S+) \(0x`).FindAllStringSubmatch(string(said), -1) {
		files = append(files, lab.File{Path: library[1], Host: library[1], Mode: 0o755})
	}
	return files
}
