package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// commands are what people are told of. A new command belongs here, and into the README.
func commands() []string {
	return []string{
		"accept", "changes", "cleanup", "detail", "explain", "findings", "history", "leftovers", "next", "node", "nodes", "ready",
		"restore", "service", "status", "timeline", "version", "watch",
	}
}

func TestCommandsArePublished(t *testing.T) {
	var names []string
	for _, cmd := range newRoot(time.Now).Commands() {
		names = append(names, cmd.Name())
	}
	slices.Sort(names)
	if !slices.Equal(names, commands()) {
		t.Errorf("commands: %q", names)
	}
}

// walk visits every command.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		walk(child, visit)
	}
}

// Help fits 80 columns but for examples, and every command and flag has one line that says what it is for.
func TestHelpReadsWell(t *testing.T) {
	walk(newRoot(time.Now), func(cmd *cobra.Command) {
		for _, line := range strings.Split(cmd.Long, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), len(line), line)
			}
		}
		if strings.Contains(cmd.Short, "\n") || len(cmd.Short) > 90 || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q", cmd.CommandPath(), cmd.Short)
		}
	})
}

// Every example names flags that are there and words that the command takes: cobra parses it, and its arguments are checked.
func TestExamplesAreValid(t *testing.T) {
	word := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	walk(newRoot(time.Now), func(cmd *cobra.Command) {
		for _, line := range strings.Split(cmd.Example, "\n") {
			line = strings.TrimSpace(line)
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, "; ")
			line, _, _ = strings.Cut(line, " && ")
			line, _, _ = strings.Cut(line, " > ")
			line = strings.Replace(line, "kubectl offramp", "kubectl-offramp", 1)
			if !strings.HasPrefix(line, "kubectl-offramp ") {
				continue
			}
			var args []string
			for _, found := range word.FindAllString(strings.ReplaceAll(line, `='`, ` '`), -1) {
				args = append(args, strings.Trim(found, `'"`))
			}
			root := newRoot(time.Now)
			called, rest, err := root.Find(rejoin(args[1:]))
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if err := called.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if called.Args != nil {
				if err := called.Args(called, called.Flags().Args()); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
			if name := called.Name(); name == "explain" || name == "accept" {
				for _, id := range called.Flags().Args() {
					if !slices.Contains(findingIDs(), id) {
						t.Errorf("%s: there is no finding %s", line, id)
					}
				}
			}
		}
	})
}

// rejoin puts a template back to its format.
func rejoin(args []string) []string {
	var joined []string
	for i := 0; i < len(args); i++ {
		if args[i] == pathWord && i+1 < len(args) {
			joined = append(joined, args[i]+"="+args[i+1])
			i++
			continue
		}
		joined = append(joined, args[i])
	}
	return joined
}

// What a shell asks for comes back: commands, findings, words of flags. It is what kubectl asks of kubectl_complete-offramp, too.
func TestCompletion(t *testing.T) {
	for want, args := range map[string][]string{
		"leftovers\t":                 {"left"},
		"kernel-too-old":              {"explain", "kernel"},
		"on-ipvs\n":                   {"accept", "on-"},
		"iptables\n":                  {"status", "--target", ""},
		"soaking\n":                   {"nodes", "--phase", ""},
		"leftovers\n":                 {"nodes", "--sort-by", ""},
		"not-rebooted-since-switch\n": {"nodes", "--finding", ""},
		"jsonpath=TEMPLATE\n":         {"nodes", "-o", ""},
	} {
		call(t.Context(), nil, append([]string{"__complete"}, args...)...).want(t, 0, want, "Completion ended")
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		call(t.Context(), nil, "completion", shell).want(t, 0, "kubectl-offramp", "")
	}
}

// The core of the promise "cli never computes": what it needs of the rules are their words.
func TestTheCLIJudgesNothing(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	judging := regexp.MustCompile(`readiness\.(Assess|AssessCluster|Upgrade|Steps|Accept|AcceptFindings)\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && judging.Match(text) {
			t.Errorf("%s judges", file)
		}
	}
}

// Empty and absurd answers are no reason to crash, whatever the command and the format.
func TestGarbledAnswers(t *testing.T) {
	hollow := &fakeFleet{readiness: &offrampv1.GetReadinessResponse{Steps: []*offrampv1.Step{{}}, Findings: []*offrampv1.FindingCount{{}}, ClusterFindings: []*offrampv1.Finding{{}},
		Verdict: 99, Pools: []*offrampv1.GroupCount{{}, {}}, Unread: []*offrampv1.ClusterSource{{}}, Upgrade: &offrampv1.UpgradeAnswer{Milestones: []*offrampv1.Milestone{{}}}},
		nodes: []*offrampv1.NodeSummary{{}, {}}, node: &offrampv1.GetNodeResponse{}, changes: &offrampv1.ListChangesResponse{Changes: []*offrampv1.Change{{}}, Incomplete: 1 << 63},
		accepted: []*offrampv1.Acceptance{{}}, answers: []*offrampv1.GetServiceResponse{{}, {Event: &offrampv1.GetServiceResponse_Summary{}}, {Event: &offrampv1.GetServiceResponse_Node{}}}}
	codes := map[string]int{"ready": 4, "leftovers": 4, "changes": 4, "service": 4}
	for _, args := range [][]string{
		{"status"}, {"ready"}, {"next"}, {"nodes"}, {"node", "n"}, {"leftovers"}, {"findings"}, {"changes"}, {"history", "n"}, {"accept", "--list"}, {"service", "a/b"},
	} {
		for _, format := range []string{"text", "json", "yaml"} {
			got := ask(t, hollow, append(args, "-o", format)...)
			if got.code != codes[args[0]] {
				t.Errorf("%q as %s: code %d, %s", args, format, got.code, got.stderr)
			}
		}
	}
}
