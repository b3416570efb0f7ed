package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func lookup(environment map[string]string) Lookup {
	return func(name string) (string, bool) { value, found := environment[name]; return value, found }
}

// wiring is one flag of each kind that the programs have.
type wiring struct {
	flags    *pflag.FlagSet
	node     string
	interval time.Duration
	insecure bool
	names    []string
}

func wire(t *testing.T, args ...string) *wiring {
	t.Helper()
	w := &wiring{flags: pflag.NewFlagSet("test", pflag.ContinueOnError)}
	w.flags.StringVar(&w.node, "node", "default", "")
	w.flags.DurationVar(&w.interval, "scan-interval", time.Second, "")
	w.flags.BoolVar(&w.insecure, "insecure", false, "")
	w.flags.StringSliceVar(&w.names, "name", nil, "")
	w.flags.Bool("help", false, "")
	if err := Also(w.flags, "node", "NODE_NAME"); err != nil {
		t.Fatal(err)
	}
	if err := w.flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestFillPrefersFlagThenOwnVariableThenOther(t *testing.T) {
	tests := map[string]struct {
		args        []string
		environment map[string]string
		want        string
	}{
		"nothing":            {nil, nil, "default"},
		"other variable":     {nil, map[string]string{"NODE_NAME": "b"}, "b"},
		"own variable first": {nil, map[string]string{"NODE_NAME": "b", "OFFRAMP_NODE": "a"}, "a"},
		"flag wins":          {[]string{"--node=c"}, map[string]string{"NODE_NAME": "b", "OFFRAMP_NODE": "a"}, "c"},
		"empty flag wins":    {[]string{"--node="}, map[string]string{"OFFRAMP_NODE": "a"}, ""},
		"empty is not set":   {nil, map[string]string{"OFFRAMP_NODE": "", "NODE_NAME": "b"}, "b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := wire(t, tt.args...)
			if err := Fill(w.flags, lookup(tt.environment)); err != nil {
				t.Fatal(err)
			}
			if w.node != tt.want {
				t.Errorf("got %q, want %q", w.node, tt.want)
			}
		})
	}
}

func TestFillReadsEveryKind(t *testing.T) {
	w := wire(t)
	err := Fill(w.flags, lookup(map[string]string{
		"OFFRAMP_SCAN_INTERVAL": "90s", "OFFRAMP_INSECURE": "true", "OFFRAMP_NAME": "a,b", "OFFRAMP_HELP": "true",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if w.interval != 90*time.Second || !w.insecure || !slices.Equal(w.names, []string{"a", "b"}) {
		t.Errorf("got %+v", w)
	}
	if w.flags.Changed("help") {
		t.Error("a variable asked for help")
	}
}

func TestFillNamesTheVariableThatIsWrong(t *testing.T) {
	w := wire(t)
	err := Fill(w.flags, lookup(map[string]string{"OFFRAMP_SCAN_INTERVAL": "soon"}))
	if err == nil || !strings.Contains(err.Error(), "OFFRAMP_SCAN_INTERVAL") {
		t.Errorf("got %v", err)
	}
}

func TestAlsoWantsAFlag(t *testing.T) {
	if err := Also(pflag.NewFlagSet("test", pflag.ContinueOnError), "node", "NODE_NAME"); err == nil {
		t.Error("a flag that does not exist was accepted")
	}
}

func TestDocumentIsSaidOnce(t *testing.T) {
	root, child := &cobra.Command{Use: "root"}, &cobra.Command{Use: "child"}
	root.AddCommand(child)
	child.Flags().String("scan-interval", "", "how often")
	Document(root)
	Document(root)
	if got, want := child.Flags().Lookup("scan-interval").Usage, "how often [$OFFRAMP_SCAN_INTERVAL]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTargetFlag(t *testing.T) {
	words := map[string]offrampv1.Target{
		"nftables": offrampv1.Target_TARGET_NFTABLES, "iptables": offrampv1.Target_TARGET_IPTABLES,
		"none": offrampv1.Target_TARGET_NONE, "ipvs": offrampv1.Target_TARGET_IPVS,
	}
	for word, want := range words {
		var target offrampv1.Target
		cmd := &cobra.Command{}
		TargetFlag(cmd, &target)
		if err := cmd.Flags().Set("target", word); err != nil || target != want {
			t.Errorf("%s gives %v, %v", word, target, err)
		}
		if got := cmd.Flags().Lookup("target").Value.String(); got != word {
			t.Errorf("%s prints as %q", word, got)
		}
	}
	for _, word := range []string{"", "NFTABLES", "nft", "unspecified"} {
		if got, err := ParseTarget(word); err == nil {
			t.Errorf("%q gives %v", word, got)
		}
	}
	if len(words) != len(targetWords()) {
		t.Error("a target has no test")
	}
}

func TestOutputFlag(t *testing.T) {
	var output string
	cmd := &cobra.Command{}
	OutputFlag(cmd, &output, "text", "json")
	if output != "text" {
		t.Errorf("the default is %q", output)
	}
	if err := cmd.Flags().Set("output", "json"); err != nil || output != "json" {
		t.Errorf("got %q, %v", output, err)
	}
	if err := cmd.Flags().Set("output", "xml"); err == nil || output != "json" {
		t.Errorf("xml was accepted: %q, %v", output, err)
	}
}

func TestOnlyFlag(t *testing.T) {
	w := wire(t)
	if err := OnlyFlag(w.flags, "node"); err != nil {
		t.Fatal(err)
	}
	if err := Fill(w.flags, lookup(map[string]string{"NODE_NAME": "b", "OFFRAMP_NODE": "a"})); err != nil || w.node != "default" {
		t.Errorf("node is %q, %v", w.node, err)
	}
	if OnlyFlag(w.flags, "nowhere") == nil {
		t.Error("a flag that does not exist is no error")
	}
}
