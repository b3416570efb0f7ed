package render

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

var update = flag.Bool("update", false, "write the golden files again; look at the difference before committing it")

// goldens are all outputs that are held by a file, by the file's name.
func goldens() map[string]func(io.Writer) error {
	document := &offrampv1.GetNodeResponse{Summary: sampleNodes()[1], Facts: dirtyNode()}
	all := map[string]func(io.Writer) error{
		"node-dirty.txt":     func(w io.Writer) error { return Node(w, dirtyNode(), dirtyAssessment()) },
		"node-bare.txt":      func(w io.Writer) error { return Node(w, bareNode(), cleanAssessment()) },
		"node-nothing.txt":   func(w io.Writer) error { return Node(w, nil, nil) },
		"node-dirty.json":    func(w io.Writer) error { return JSON(w, document) },
		"node-dirty.yaml":    func(w io.Writer) error { return YAML(w, document) },
		"verify-dirty.txt":   func(w io.Writer) error { return Verify(w, "worker-1", dirtyAssessment()) },
		"verify-clean.txt":   func(w io.Writer) error { return Verify(w, "worker-1", cleanAssessment()) },
		"verify-nothing.txt": func(w io.Writer) error { return Verify(w, "", nil) },
		"nodes.txt":          func(w io.Writer) error { return Nodes(w, sampleNodes(), false, noon) },
		"nodes-wide.txt":     func(w io.Writer) error { return Nodes(w, sampleNodes(), true, noon) },
		"nodes-none.txt":     func(w io.Writer) error { return Nodes(w, nil, false, noon) },
		"nodes-names.txt":    func(w io.Writer) error { return Names(w, sampleNodes()) },
		"readiness.txt":      func(w io.Writer) error { return Readiness(w, sampleFleet()) },
		"readiness-none.txt": func(w io.Writer) error { return Readiness(w, &offrampv1.GetReadinessResponse{At: ago(0)}) },
		"ready.txt":          func(w io.Writer) error { return Ready(w, sampleFleet(), "blocked: not every node could go there") },
		"readiness.json":     func(w io.Writer) error { return JSON(w, sampleFleet()) },
		"summary.txt":        func(w io.Writer) error { return Summary(w, sampleNodes()[1]) },
	}
	maps.Copy(all, planGoldens())
	maps.Copy(all, fleetGoldens())
	return all
}

func rendered(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestGolden(t *testing.T) {
	for name, write := range goldens() {
		t.Run(name, func(t *testing.T) {
			path, got := filepath.Join("testdata", name), rendered(t, write)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// Text for people fits a terminal of 80 columns; documents and the wide table do not have to.
func TestColumns(t *testing.T) {
	for name, write := range goldens() {
		if !strings.HasSuffix(name, ".txt") || strings.HasPrefix(name, "nodes-wide") || strings.Contains(name, "json") {
			continue
		}
		for i, line := range strings.Split(rendered(t, write), "\n") {
			if n := utf8.RuneCountInString(line); n > columns && !isCommand(line) {
				t.Errorf("%s:%d has %d columns: %s", name, i+1, n, line)
			}
			if line != strings.TrimRight(line, " ") {
				t.Errorf("%s:%d ends in a blank: %q", name, i+1, line)
			}
		}
	}
}

// A command is there to be copied, and stays on one line.
func isCommand(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "$ ") }

// Every file of testdata belongs to an output.
func TestGoldenFilesAreUsed(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	known := goldens()
	for _, file := range files {
		if known[file.Name()] == nil {
			t.Errorf("testdata/%s belongs to no output", file.Name())
		}
	}
}

// poison puts the attacks into every string of a message, however deep.
func poison(message proto.Message) {
	poisonMessage(message.ProtoReflect(), attacks)
}

// attacks are what a hostile node may put into a name: colours, a title, a cleared screen, an 8-bit control sequence, a new
// line that forges a row, and characters that turn the direction of writing.
const attacks = "a\x1b[2J\x1b]0;owned\x07b\u009b31mc\nworker-0 ready\rd\x7fe\u202ef\u2028g\ufeffh\U000e0001i"

func TestHostileText(t *testing.T) {
	facts, assessment, nodes, fleet := dirtyNode(), dirtyAssessment(), sampleNodes(), asked140()
	changes, service, answer, accepted := sampleChanges(), sampleService(), sampleAnswers()[1], sampleAcceptances()[0]
	for _, message := range []proto.Message{facts, assessment, fleet, changes, service, answer, accepted} {
		poison(message)
	}
	for _, node := range nodes {
		poison(node)
	}
	document := &offrampv1.GetNodeResponse{Summary: nodes[0], Facts: facts}
	outputs := map[string]func(io.Writer) error{
		"node":      func(w io.Writer) error { return Node(w, facts, assessment) },
		"verify":    func(w io.Writer) error { return Verify(w, attacks, assessment) },
		"nodes":     func(w io.Writer) error { return Nodes(w, nodes, false, noon) },
		"wide":      func(w io.Writer) error { return Nodes(w, nodes, true, noon) },
		"names":     func(w io.Writer) error { return Names(w, nodes) },
		"readiness": func(w io.Writer) error { return Readiness(w, fleet) },
		"ready":     func(w io.Writer) error { return Ready(w, fleet, attacks) },
		"summary":   func(w io.Writer) error { return Summary(w, nodes[0]) },
		"list":      func(w io.Writer) error { return List(w, &offrampv1.NamedList{Items: []string{attacks}}) },
		"forgotten": func(w io.Writer) error { return (&NodeTable{}).Forgotten(w, attacks) },
		"steps":     func(w io.Writer) error { return Steps(w, fleet) },
		"findings":  func(w io.Writer) error { return Findings(w, fleet, true) },
		"leftovers": func(w io.Writer) error { return Leftovers(w, nodes, fleet) },
		"changes":   func(w io.Writer) error { return Changes(w, changes) },
		"csv": func(w io.Writer) error {
			return errors.Join(NodesCSV(w, nodes), FindingsCSV(w, fleet), ChangesCSV(w, changes.GetChanges()))
		},
		"service": func(w io.Writer) error {
			return errors.Join(ServiceHead(w, service), NodeService(w, answer, true), Balance(w, []*offrampv1.NodeService{answer}))
		},
		"accepted": func(w io.Writer) error { return Acceptances(w, []*offrampv1.Acceptance{accepted}, noon) },
		"json":     func(w io.Writer) error { return JSON(w, document) },
		"jsonline": func(w io.Writer) error { return JSONLine(w, document) },
		"yaml":     func(w io.Writer) error { return YAML(w, document) },
	}
	for name, write := range outputs {
		t.Run(name, func(t *testing.T) { mustPrint(t, rendered(t, write)) })
	}
	if lines := strings.Count(rendered(t, outputs["nodes"]), "\n"); lines != len(nodes)+1 {
		t.Errorf("%d nodes and a header made %d lines", len(nodes), lines)
	}
}

func mustPrint(t *testing.T, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%U at byte %d: %q", r, i, text[max(0, i-20):min(len(text), i+20)])
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"", "plain", attacks, "\xff\xfe", strings.Repeat("x", 2*maxText), "Ünïcödé 漢字"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Clean(text)
		mustPrint(t, got)
		if strings.Contains(got, "\n") {
			t.Errorf("%q has a line end", got)
		}
		if again := Clean(got); again != got && utf8.RuneCountInString(got) <= maxText {
			t.Errorf("%q became %q when cleaned again", got, again)
		}
	})
}
