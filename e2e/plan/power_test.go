package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
)

// journaled is one entry of `cleanup journal -o json`.
type journaled struct {
	ID, What, Target    string
	Interrupted, Backup bool
	Operations          map[string]int
	Error               string
}

// powerPoints are the numbers of lines in the journal after which power is lost: a line for the begin and one for the
// backup, then two for each part of the plan.
func powerPoints() []int {
	if os.Getenv("OFFRAMP_FULL") == "1" {
		return []int{1, 3, 6, 9, 12}
	}
	return []int{6}
}

// Power is lost in the middle of a clean-up, with the state on a disk. The next boot has nothing of the old kernel; the
// journal tells what was done, what was not, and of what it cannot be told; nothing comes back from another boot's backup;
// and a new clean-up of what a kube-proxy has left since goes through and closes the old run.
func TestPowerIsLostInMidApply(t *testing.T) {
	l := labtest.Start(t)
	for _, lines := range powerPoints() {
		t.Run(fmt.Sprintf("after %d lines", lines), func(t *testing.T) {
			files := []lab.File{{Path: agent, Host: programs.Agent(), Mode: 0o755}}
			first := bootAgent(t, l, "6.1", fmt.Sprintf("power%d", lines))
			if err := lab.Restore(t.Context(), first, "ipvs-then-iptables"); err != nil {
				t.Fatal(err)
			}
			losePower(t, first, lines)

			second := labtest.Boot(t, l, lab.VM{Name: fmt.Sprintf("again%d", lines), Kernel: "6.1", DiskOf: first, Files: files})
			if err := second.MountDisk(t.Context(), "/var/lib/offramp"); err != nil {
				t.Fatal(err)
			}
			told := journalOn(t, second)
			if len(told) != 1 || !told[0].Interrupted || told[0].Target != "none" {
				t.Fatalf("the journal tells %+v, want one interrupted run", told)
			}
			t.Logf("%+v", told[0].Operations)
			if told[0].Operations["remains"] > 0 || lines > 1 && !told[0].Backup {
				t.Errorf("the journal tells %+v", told[0])
			}
			if told[0].Backup {
				if _, exit := tryRestore(t, second, told[0].ID, "--assert-no-kube-proxy", nobody); exit != 2 {
					t.Errorf("restore after a reboot: exit code %d, want 2", exit)
				}
			}
			if done, exit := applyOn(t, second, "--target", "none", "--assert-no-kube-proxy", nobody); exit != 0 || len(done.GetOperations()) != 0 {
				t.Errorf("after a reboot: exit code %d, %d operations, want nothing to do", exit, len(done.GetOperations()))
			}
			goesOn(t, second)
		})
	}
}

// losePower starts a clean-up and switches the guest off once its journal has so many lines.
func losePower(t *testing.T, g *lab.Guest, lines int) {
	t.Helper()
	apply, err := g.Start(t.Context(), lab.Command{Argv: []string{agent, "cleanup", "apply", "--yes", "--target", "none", "--assert-no-kube-proxy", nobody}})
	if err != nil {
		t.Fatal(err)
	}
	// The guest watches its own journal: asking from outside takes too long.
	wait := fmt.Sprintf(`while [ "$(cat /var/lib/offramp/journal/*.jsonl 2>/dev/null | wc -l)" -lt %d ]; do :; done`, lines)
	output(t, g, wait)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-apply.Done():
	case <-time.After(time.Minute):
		t.Fatal("the clean-up outlived its machine")
	}
}

// goesOn puts something of kube-proxy's there and cleans it.
func goesOn(t *testing.T, g *lab.Guest) {
	t.Helper()
	feed(t, g, "create KUBE-6-CLUSTER-IP hash:ip,port family inet6\n", "ipset restore")
	done, exit := applyOn(t, g, "--target", "none", "--assert-no-kube-proxy", nobody)
	if exit != 0 || len(done.GetOperations()) != 1 {
		t.Errorf("exit code %d, %d operations, want 1", exit, len(done.GetOperations()))
	}
	told := journalOn(t, g)
	if len(told) != 2 || told[0].Interrupted || told[1].Interrupted || !strings.HasPrefix(told[0].Error, "interrupted: ") {
		t.Errorf("the journal tells %+v, want that the first run is closed and was interrupted", told)
	}
	restoreOn(t, g, done.GetBackupId(), "--assert-no-kube-proxy", nobody)
	if sets := output(t, g, "ipset list -n"); !strings.Contains(sets, "KUBE-6-CLUSTER-IP") {
		t.Errorf("the set did not come back: %s", sets)
	}
}

func journalOn(t *testing.T, g *lab.Guest) []journaled {
	t.Helper()
	var told []journaled
	if err := json.Unmarshal([]byte(output(t, g, agent+" cleanup journal -o json")), &told); err != nil {
		t.Fatal(err)
	}
	return told
}
