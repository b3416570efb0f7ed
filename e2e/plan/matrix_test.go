package plan_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const nobody = "the test ended it"

// matrixCaptures are those of a run: all where everything is asked for, else the four of nodes that have something to clean and of
// one that never synced, so that a run takes minutes. Single ones can be chosen by name.
func matrixCaptures() []string {
	if chosen := os.Getenv("OFFRAMP_CAPTURES"); chosen != "" {
		return strings.Split(chosen, ",")
	}
	if os.Getenv("OFFRAMP_FULL") == "1" {
		return append(captures.Names(), captures.Recorded()...)
	}
	return []string{"ipvs-then-iptables", "ipvs-then-nftables", "iptables-sync-failed", "1.37.2-legacy-ipvs-then-nftables"}
}

// TestCleanupMatrix cleans each capture for each target on a real kernel, with other people's state beside it. What became
// of it is docs/cleanup-matrix.md. After each clean-up the native tools show what they showed before, without what of
// kube-proxy's was to go; after each refusal they show what they showed before; and a restore brings all back.
func TestCleanupMatrix(t *testing.T) {
	l := labtest.Start(t)
	table := matrix{}
	for _, kernel := range kernels() {
		t.Run(kernel, func(t *testing.T) {
			g := bootAgent(t, l, kernel, "matrix")
			for _, capture := range matrixCaptures() {
				passed := t.Run(capture, func(t *testing.T) {
					row := captureRow(t, g, capture)
					if was, seen := table[capture]; seen && was != row {
						t.Errorf("on this kernel: %v, on another: %v", row, was)
					}
					table[capture] = row
				})
				if !passed {
					delete(table, capture)
				}
			}
		})
	}
	documented(t, table)
}

// bootAgent boots a guest with the agent and a disk for its state.
func bootAgent(t *testing.T, l *lab.Lab, kernel, name string) *lab.Guest {
	t.Helper()
	g := labtest.Boot(t, l, lab.VM{Name: name, Kernel: kernel, Disk: 256, Files: []lab.File{{Path: agent, Host: programs.Agent(), Mode: 0o755}}})
	if err := g.MountDisk(t.Context(), "/var/lib/offramp"); err != nil {
		t.Fatal(err)
	}
	return g
}

// targets in the order of the columns.
func targets() []string { return []string{"nftables", "iptables", "ipvs", "none"} }

// captureRow tries all targets on one capture: those of a mode while the captured kube-proxy (a stand-in) runs, the one
// that runs last, since it alone can be cleaned; none with no kube-proxy, as a person asserts.
func captureRow(t *testing.T, g *lab.Guest, capture string) row {
	t.Helper()
	wipe(t, g)
	if err := lab.Restore(t.Context(), g, capture); err != nil {
		t.Fatal(err)
	}
	addForeign(t, g)
	running := strings.TrimSpace(captureFile(capture, "proxyMode.txt"))
	var proxy *lab.Process
	if running != "" {
		var err error
		if proxy, err = lab.StandIn(t.Context(), g, capture); err != nil {
			t.Fatal(err)
		}
	}
	cells := cell{t: t, g: g, before: lookNative(t, g), answers: proxy != nil}
	var line row
	order := append(slices.DeleteFunc(targets()[:3], func(target string) bool { return target == running }), running)
	for _, target := range order {
		if target != "" {
			line[slices.Index(targets(), target)] = cells.try(target)
		}
	}
	stop(t, proxy)
	cells.undo()
	line[3] = cells.try("none", "--assert-no-kube-proxy", nobody)
	cells.undo()
	return line
}

func captureFile(capture, file string) string {
	content, err := captures.Read(capture, file)
	if err != nil {
		return ""
	}
	return string(content)
}

// cell is one capture on its way through the targets.
type cell struct {
	t       *testing.T
	g       *lab.Guest
	before  natives
	answers bool   // a kube-proxy runs that should answer
	backup  string // of what was cleaned and is not yet restored
}

// try applies and says what became of it.
func (c *cell) try(target string, flags ...string) string {
	c.t.Helper()
	result, exit := applyOn(c.t, c.g, append([]string{"--target", target}, flags...)...)
	// A stand-in for kube-proxy that does not answer in time on a busy machine is an answer of its own, 4.
	for try := 0; c.answers && exit == 4 && try < 5; try++ {
		result, exit = applyOn(c.t, c.g, append([]string{"--target", target}, flags...)...)
	}
	after := lookNative(c.t, c.g)
	switch refused := result.GetRefusedBy(); {
	case len(refused) > 0:
		sameNatives(c.t, "refused for "+target, c.before, after)
		var ids []string
		for _, guard := range refused {
			ids = append(ids, "`"+guard.GetId()+"`")
		}
		return "refused: " + strings.Join(ids, ", ")
	case len(result.GetOperations()) == 0:
		sameNatives(c.t, "nothing to do for "+target, c.before, after)
		c.exits("nothing to do for "+target, 0, exit)
		return "nothing to do"
	default:
		c.backup = result.GetBackupId()
		c.exits("cleaned for "+target, 0, exit)
		sameNatives(c.t, "cleaned for "+target, expected(c.before, target, foreignServers), after)
		again, exit := applyOn(c.t, c.g, append([]string{"--target", target}, flags...)...)
		if len(again.GetOperations()) > 0 {
			c.t.Errorf("a second run for %s ends with %d and did %d operations", target, exit, len(again.GetOperations()))
		}
		return fmt.Sprintf("cleaned (%d operations)", len(result.GetOperations()))
	}
}

func (c *cell) exits(what string, want, got int) {
	c.t.Helper()
	if want != got {
		c.t.Errorf("%s: exit code %d, want %d", what, got, want)
	}
}

// undo restores what was cleaned, with no kube-proxy running: then everything is as it was before.
func (c *cell) undo() {
	c.t.Helper()
	c.answers = false
	if c.backup == "" {
		return
	}
	restoreOn(c.t, c.g, c.backup, "--assert-no-kube-proxy", nobody)
	sameNatives(c.t, "restored", c.before, lookNative(c.t, c.g))
	c.backup = ""
}

// applyOn plans and applies in one go. It tries no connections: the pods of the captures are not there.
func applyOn(t *testing.T, g *lab.Guest, flags ...string) (*offrampv1.CleanupResult, int) {
	t.Helper()
	result, err := g.Run(t.Context(), append([]string{agent, "cleanup", "apply", "--yes", "--no-connect", "-o", "json"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	done := &offrampv1.CleanupResult{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(result.Stdout), done); err != nil {
		t.Fatalf("apply: %v: exit code %d: %s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	for i, operation := range done.GetOperations() {
		if operation.GetOutcome() != offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE {
			t.Errorf("apply %v: operation %d: %v: %s", flags, i, operation.GetOutcome(), operation.GetError())
		}
	}
	return done, result.ExitCode
}
