package program

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

func none(string) (string, bool) { return "", false }

func tree(answer error) *cobra.Command {
	var level string
	root := &cobra.Command{Use: "prog", Short: "s", Long: "l", Example: "e", RunE: Group}
	leaf := &cobra.Command{Use: "leaf", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return answer }}
	leaf.Flags().StringVar(&level, "level", "", "")
	root.AddCommand(leaf, &cobra.Command{Use: "named NAME", Args: OneArg("name"), RunE: func(*cobra.Command, []string) error { return nil }})
	return root
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		args   []string
		answer error
		code   int
		stderr string
	}{
		"fine":            {[]string{"leaf"}, nil, 0, ""},
		"an answer":       {[]string{"leaf"}, Code(4), 4, ""},
		"answer 0":        {[]string{"leaf"}, Code(0), 0, ""},
		"an error":        {[]string{"leaf"}, errors.New("no route"), 1, "prog: no route\n"},
		"wrong use":       {[]string{"leaf"}, Usagef("which %s?", "node"), 1, "prog: which node?\nRun 'prog leaf --help' for usage.\n"},
		"unknown flag":    {[]string{"leaf", "--x"}, nil, 1, "prog: unknown flag: --x\nRun 'prog leaf --help' for usage.\n"},
		"extra argument":  {[]string{"leaf", "x"}, nil, 1, "prog: prog leaf takes no argument, got \"x\"\nRun 'prog leaf --help' for usage.\n"},
		"no argument":     {[]string{"named"}, nil, 1, "prog: prog named wants one name, got 0 arguments\nRun 'prog named --help' for usage.\n"},
		"one argument":    {[]string{"named", "x"}, nil, 0, ""},
		"unknown command": {[]string{"zzz"}, nil, 1, "prog: unknown command \"zzz\" for \"prog\"\nRun 'prog --help' for usage.\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Run(t.Context(), tree(tt.answer), tt.args, none, &stdout, &stderr)
			if code != tt.code || stderr.String() != tt.stderr || stdout.Len() != 0 {
				t.Errorf("code %d, stderr %q, stdout %q", code, stderr.String(), stdout.String())
			}
		})
	}
}

func TestRunWithoutCommandHelps(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := Run(t.Context(), tree(nil), nil, none, &stdout, &stderr); code != 0 || stdout.Len() == 0 || stderr.Len() != 0 {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

func TestRunTakesVariables(t *testing.T) {
	root := tree(nil)
	lookup := func(name string) (string, bool) { return "high", name == "OFFRAMP_LEVEL" }
	var stdout, stderr bytes.Buffer
	if code := Run(t.Context(), root, []string{"leaf"}, lookup, &stdout, &stderr); code != 0 {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	leaf, _, err := root.Find([]string{"leaf"})
	if err != nil {
		t.Fatal(err)
	}
	if got := leaf.Flags().Lookup("level").Value.String(); got != "high" {
		t.Errorf("got %q", got)
	}
}

func TestUndocumented(t *testing.T) {
	got := Undocumented(tree(nil))
	slices.Sort(got)
	want := []string{"prog leaf: Example", "prog leaf: Long", "prog leaf: Short", "prog named: Example", "prog named: Long", "prog named: Short"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
