package trace

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/authority"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// machine is where the agent and the native tools run side by side.
type machine interface {
	// run runs a program to its end. That it ends with another exit code than 0 is no error.
	run(t *testing.T, stdin string, argv ...string) lab.Result
	// agent is the path of offramp-agent there.
	agent() string
}

// here is this host, in the network namespace that the test is in.
type here struct{}

func (here) agent() string { return programs.Agent() }

func (here) run(t *testing.T, stdin string, argv ...string) lab.Result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %v: %v", argv, err)
	}
	return lab.Result{Stdout: out.String(), Stderr: problems.String(), ExitCode: cmd.ProcessState.ExitCode()}
}

// guest is a virtual machine.
type guest struct{ *lab.Guest }

const (
	agentPath = "/usr/local/bin/offramp-agent"
	caPath    = "/etc/offramp/ca.pem"
)

func (guest) agent() string { return agentPath }

func (g guest) run(t *testing.T, stdin string, argv ...string) lab.Result {
	t.Helper()
	result, err := g.RunInput(t.Context(), []byte(stdin), argv...)
	if err != nil {
		t.Fatalf("running %v on %s: %v", argv, g.Name, err)
	}
	return result
}

// boot boots a guest with the agent in it.
func boot(t *testing.T, l *lab.Lab, kernel string, certificates authority.Files) guest {
	t.Helper()
	return guest{labtest.Boot(t, l, lab.VM{Name: nodeOf(kernel), Kernel: kernel, Files: []lab.File{
		{Path: agentPath, Host: programs.Agent(), Mode: 0o755}, {Path: caPath, Host: certificates.CA},
	}})}
}

// nodeOf is the name of the guest with a kernel.
func nodeOf(kernel string) string { return "node-" + strings.ReplaceAll(kernel, ".", "-") }

func certify(t *testing.T, l *lab.Lab) authority.Files {
	t.Helper()
	files, err := authority.Make(t.TempDir(), netip.MustParseAddr(l.HostAddr()))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// output runs a program that has to succeed.
func output(t *testing.T, m machine, argv ...string) string {
	t.Helper()
	result := m.run(t, "", argv...)
	if result.ExitCode != 0 {
		t.Fatalf("%v: exit code %d: %s%s", argv, result.ExitCode, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// script runs a shell script that has to succeed.
func script(t *testing.T, m machine, text string) {
	t.Helper()
	output(t, m, "sh", "-ec", text)
}

// inspect is what `offramp-agent inspect -o json` says.
func inspect(t *testing.T, m machine) *offrampv1.GetNodeResponse {
	t.Helper()
	node := &offrampv1.GetNodeResponse{}
	out := output(t, m, m.agent(), "inspect", "-o", "json")
	if err := protojson.Unmarshal([]byte(out), node); err != nil {
		t.Fatalf("what inspect prints is not the JSON that it says: %v", err)
	}
	return node
}

// section finds one section of what inspect says.
func section(t *testing.T, node *offrampv1.GetNodeResponse, kind offrampv1.SectionKind) *offrampv1.Section {
	t.Helper()
	for _, one := range node.GetFacts().GetSections() {
		if one.GetKind() == kind {
			return one
		}
	}
	t.Fatalf("inspect says nothing of %v", kind)
	return nil
}
