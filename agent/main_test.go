package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/agent/probe"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// stage is a stand-in for the parts of an agent, and notes what the commands made of it.
type stage struct {
	assessment *offrampv1.Assessment
	facts      *offrampv1.NodeFacts
	hostname   string
	reportErr  error
	// untilStopped makes report last until its context ends.
	untilStopped bool

	inventory *inventory.Node
	executor  *fakeExecutor

	services    []inventory.Service
	servicesErr error
	audit       fakeAudit

	config    collect.Config
	excluded  []string
	recalled  string
	recallErr error
	target    offrampv1.Target
	reporting *reporting
}

func newStage() *stage {
	kernel := &offrampv1.Section{Kind: offrampv1.SectionKind_SECTION_KIND_KERNEL, Stable: &offrampv1.SectionStable{
		State:   offrampv1.SectionState_SECTION_STATE_PRESENT,
		Content: &offrampv1.SectionStable_Kernel{Kernel: &offrampv1.KernelFacts{Release: "6.1.0", OsPrettyName: "Debian"}}}}
	unreadable := &offrampv1.Section{Kind: offrampv1.SectionKind_SECTION_KIND_IPSETS, Stable: &offrampv1.SectionStable{
		State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "operation not permitted"}}
	return &stage{hostname: "Worker-1", facts: &offrampv1.NodeFacts{Node: "worker-1", Sections: []*offrampv1.Section{kernel, unreadable}},
		assessment: &offrampv1.Assessment{Verify: offrampv1.Verdict_VERDICT_READY, Leftovers: &offrampv1.Leftovers{}}}
}

func (s *stage) parts() parts {
	return parts{
		scan: func(_ context.Context, config collect.Config) *offrampv1.NodeFacts { s.config = config; return s.facts },
		assess: func(_ *offrampv1.NodeFacts, target offrampv1.Target) *offrampv1.Assessment {
			s.target = target
			return s.assessment
		},
		exitCode: readiness.ExitCode,
		recall:   func(dir string) ([]string, error) { s.recalled = dir; return s.excluded, s.recallErr },
		exact: func(_ context.Context, config collect.Config) (*offrampv1.NodeFacts, *inventory.Node) {
			s.config = config
			return s.facts, s.inventory
		},
		executor: func(_ collect.Host, dir string) executor { s.executor.dir = dir; return s.executor },
		report: func(ctx context.Context, r reporting) error {
			s.reporting = &r
			if s.untilStopped {
				<-ctx.Done()
				return ctx.Err()
			}
			return s.reportErr
		},
		hostname: func() (string, error) {
			if s.hostname == "" {
				return "", errors.New("no host name")
			}
			return s.hostname, nil
		},
		services: func(context.Context, collect.Config) ([]inventory.Service, error) { return s.services, s.servicesErr },
		prober:   &probe.Prober{Timeout: 300 * time.Millisecond},
		audit:    func(string) audit.Keeper { return &s.audit },
		caller:   func() string { return "uid=0 sudo_user=alice" },
	}
}

type result struct {
	code           int
	stdout, stderr string
}

func (s *stage) call(ctx context.Context, environment map[string]string, args ...string) result {
	var stdout, stderr bytes.Buffer
	lookup := func(name string) (string, bool) { value, found := environment[name]; return value, found }
	//nolint:contextcheck // the commands take the context that cobra hands to them
	code := program.Run(ctx, newRoot(s.parts()), args, lookup, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
		t.Errorf("want code %d, stdout with %q, stderr with %q; got code %d\nstdout: %s\nstderr: %s", code, stdout, stderr, r.code, r.stdout, r.stderr)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	for _, missing := range program.Undocumented(newRoot(realParts())) {
		t.Error(missing)
	}
}

func TestVersion(t *testing.T) {
	newStage().call(t.Context(), nil, "version").want(t, 0, "offramp-agent ", "")
}

// inspect reports: it exits with 0 whatever it found, and passes over no section that could not be read.
func TestInspect(t *testing.T) {
	s := newStage()
	s.assessment.Verify = offrampv1.Verdict_VERDICT_BLOCKED
	s.call(t.Context(), nil, "inspect").want(t, 0, "ipsets: unreadable (operation not permitted)", "")
	s.call(t.Context(), nil, "inspect").want(t, 0, "run the agent as root", "")
	got := s.call(t.Context(), nil, "inspect", "-o", "json", "--target", "none")
	got.want(t, 0, "", "")
	document := &offrampv1.GetNodeResponse{}
	if err := protojson.Unmarshal([]byte(got.stdout), document); err != nil {
		t.Fatal(err)
	}
	if len(document.GetFacts().GetSections()) != 2 || document.GetSummary().GetKernelRelease() != "6.1.0" || s.target != offrampv1.Target_TARGET_NONE {
		t.Errorf("got %v, target %v", document, s.target)
	}
	s.call(t.Context(), nil, "inspect", "-o", "yaml").want(t, 0, "\nsummary:\n", "")
}

func TestVerifyExitCodes(t *testing.T) {
	ready, left := offrampv1.Verdict_VERDICT_READY, &offrampv1.Leftovers{Chains: 1}
	tests := map[string]struct {
		verdict   offrampv1.Verdict
		leftovers *offrampv1.Leftovers
		code      int
		says      string
	}{
		"clean":                   {ready, &offrampv1.Leftovers{}, 0, "ready, clean"},
		"leftovers":               {ready, left, 3, "ready, with leftovers"},
		"blocked":                 {offrampv1.Verdict_VERDICT_BLOCKED, &offrampv1.Leftovers{}, 2, "blocked"},
		"blocked with leftovers":  {offrampv1.Verdict_VERDICT_BLOCKED, left, 2, "blocked"},
		"unknown":                 {offrampv1.Verdict_VERDICT_UNKNOWN, &offrampv1.Leftovers{}, 4, "unknown"},
		"unknown with leftovers":  {offrampv1.Verdict_VERDICT_UNKNOWN, left, 4, "unknown"},
		"undecided leftovers":     {ready, &offrampv1.Leftovers{Undecided: true}, 4, "could not"},
		"no verdict":              {offrampv1.Verdict_VERDICT_UNSPECIFIED, &offrampv1.Leftovers{}, 4, "unknown"},
		"a verdict of the future": {offrampv1.Verdict(99), &offrampv1.Leftovers{}, 4, "unknown"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			s.assessment = &offrampv1.Assessment{Verify: tt.verdict, Leftovers: tt.leftovers}
			s.call(t.Context(), nil, "verify").want(t, tt.code, tt.says, "")
			s.call(t.Context(), nil, "verify", "-o", "json").want(t, tt.code, `"assessment"`, "")
		})
	}
}

func TestMistakesExitWith1(t *testing.T) {
	for want, args := range map[string][]string{
		`"nft" is no target`:        {"verify", "--target", "nft"},
		`"xml" is none of`:          {"inspect", "-o", "xml"},
		"takes no argument":         {"verify", "worker-1"},
		"unknown flag":              {"verify", "--force"},
		"unknown command":           {"clean"},
		"--timeout must be":         {"verify", "--timeout", "0s"},
		"Name it with --aggregator": {"run"},
		"wants host:port":           {"run", "--aggregator", "example.com"},
		"--scan-interval must be":   {"run", "--aggregator", "a:1", "--scan-interval", "0s"},
		"--start-within must not":   {"run", "--aggregator", "a:1", "--start-within", "-1s"},
		"no TLS":                    {"run", "--aggregator", "a:1", "--insecure-plaintext", "--ca-file", "x"},
		"/nowhere/ca.pem":           {"run", "--aggregator", "a:1", "--ca-file", "/nowhere/ca.pem"},
		"no Kubernetes node name":   {"run", "--aggregator", "a:1", "--node", "Not_A_Node"},
		`"loud" is none of`:         {"run", "--aggregator", "a:1", "--log-level", "loud"},
	} {
		got := newStage().call(t.Context(), nil, args...)
		got.want(t, 1, "", want)
		if got.stdout != "" {
			t.Errorf("%q wrote to stdout: %s", args, got.stdout)
		}
	}
}

func TestReadingAsAWholeFails(t *testing.T) {
	s := newStage()
	s.facts = &offrampv1.NodeFacts{}
	s.call(t.Context(), nil, "inspect").want(t, 1, "", "nothing of the node could be read")
	s = newStage()
	s.hostname = ""
	s.call(t.Context(), nil, "verify").want(t, 1, "", "--node was not given")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	newStage().call(stopped, nil, "verify").want(t, 1, "", "interrupted")
}

func TestSettingsReachTheReading(t *testing.T) {
	s := newStage()
	s.call(t.Context(), map[string]string{"OFFRAMP_HOST_ROOT": "/host", "OFFRAMP_PROC_ROOT": "/ignored"},
		"inspect", "--proc-root", "/host/proc", "--sys-root", "/host/sys", "--assert-no-kube-proxy", "drained",
		"--kube-proxy-metrics", "10.0.0.1:10249").want(t, 0, "", "")
	if host := s.config.Host; host.Proc != "/host/proc" || host.Sys != "/host/sys" || host.Root != "/host" || host.Now == nil {
		t.Errorf("host %+v", host)
	}
	if s.config.AssertNone != "drained" || s.config.History || !slices.Equal(s.config.KubeProxy.Metrics, []string{"10.0.0.1:10249"}) {
		t.Errorf("config %+v", s.config)
	}
}

func TestNodeName(t *testing.T) {
	for want, environment := range map[string]map[string]string{
		"worker-1": nil,
		"by-pod":   {"NODE_NAME": "by-pod"},
		"by-us":    {"NODE_NAME": "by-pod", "OFFRAMP_NODE": "by-us"},
	} {
		s := newStage()
		s.call(t.Context(), environment, "inspect").want(t, 0, "", "")
		if s.config.Node != want {
			t.Errorf("%v gives %q", environment, s.config.Node)
		}
	}
	s := newStage()
	s.call(t.Context(), map[string]string{"OFFRAMP_NODE": "by-us"}, "inspect", "--node", "by-flag").want(t, 0, "", "")
	if s.config.Node != "by-flag" {
		t.Errorf("the flag gives %q", s.config.Node)
	}
}

// The agent stays small and holds no Kubernetes code.
func TestNoKubernetesInside(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "k8s.io/") {
			t.Errorf("the agent depends on %s", name)
		}
	}
}

// The machine that runs the tests can always be inspected: every section says something, and none is an error.
func TestInspectThisHost(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"inspect", "-o", "json"}, func(string) (string, bool) { return "", false }, &stdout, &stderr)
	if code != 0 || stderr.Len() != 0 {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	document := &offrampv1.GetNodeResponse{}
	if err := protojson.Unmarshal(stdout.Bytes(), document); err != nil {
		t.Fatal(err)
	}
	for i, section := range document.GetFacts().GetSections() {
		if section.GetKind() != offrampv1.SectionKind(i+1) || section.GetStable().GetState() == offrampv1.SectionState_SECTION_STATE_UNSPECIFIED {
			t.Errorf("section %d is %v, %v", i, section.GetKind(), section.GetStable().GetState())
		}
	}
	if n, want := len(document.GetFacts().GetSections()), len(offrampv1.SectionKind_name)-1; n != want {
		t.Errorf("%d sections, want %d", n, want)
	}
}
