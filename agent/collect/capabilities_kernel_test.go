package collect

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Variables for a child of the test: the capabilities to keep, numbers with commas, and whether they were dropped already.
const (
	keepVariable    = "OFFRAMP_TEST_KEEP_CAPABILITIES"
	droppedVariable = "OFFRAMP_TEST_DROPPED"
)

// TestScanOfAChild is no test: it scans in a process that has few rights, and prints what it read.
func TestScanOfAChild(t *testing.T) {
	keep, told := os.LookupEnv(keepVariable)
	if !told {
		t.Skip("only for a child of the test of capabilities")
	}
	if os.Getenv(droppedVariable) == "" {
		t.Fatal(dropAndStartAgain(keep))
	}
	encoded, err := proto.Marshal(New(Config{Host: DefaultHost()}).Scan(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("facts:%s\n", base64.StdEncoding.EncodeToString(encoded))
}

// dropAndStartAgain takes capabilities out of the bounding set, which is the thread's, and becomes this program anew, so that
// all threads of it lack them.
func dropAndStartAgain(keep string) error {
	runtime.LockOSThread()
	for capability := range unix.CAP_LAST_CAP + 1 {
		if slices.Contains(strings.Split(keep, ","), strconv.Itoa(capability)) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), droppedVariable+"=1"))
}

// scanWith scans as a process that keeps these capabilities alone.
func scanWith(t *testing.T, capabilities ...int) *offrampv1.NodeFacts {
	t.Helper()
	var keep []string
	for _, capability := range capabilities {
		keep = append(keep, strconv.Itoa(capability))
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestScanOfAChild$")
	child.Env = append(os.Environ(), keepVariable+"="+strings.Join(keep, ","))
	out, err := child.CombinedOutput()
	_, after, found := bytes.Cut(out, []byte("facts:"))
	if err != nil || !found {
		t.Fatalf("the child: %v\n%s", err, out)
	}
	line, _, _ := bytes.Cut(after, []byte("\n"))
	encoded, err := base64.StdEncoding.DecodeString(string(line))
	node := &offrampv1.NodeFacts{}
	if err != nil || proto.Unmarshal(encoded, node) != nil {
		t.Fatalf("what the child printed is not understood: %v", err)
	}
	return node
}

func checkStates(t *testing.T, name string, node *offrampv1.NodeFacts, want map[offrampv1.SectionKind]offrampv1.SectionState) {
	t.Helper()
	for kind, state := range want {
		stable := facts.Find(node, kind).GetStable()
		if stable.GetState() != state || (state == sectionUnreadable) != (stable.GetError() != "") {
			t.Errorf("%s: %v is %v (%q), want %v", name, kind, stable.GetState(), stable.GetError(), state)
		}
	}
}

// Each time what can be read is, and the rest is marked: never empty or absent what there was no right to see.
func TestScanWithFewRights(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	run(t, "", "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port")
	run(t, "", "nft", "add", "table", "ip", "kube-proxy")
	always := map[offrampv1.SectionKind]offrampv1.SectionState{
		kindKernel: sectionPresent, kindSysctls: sectionPresent, kindHost: sectionPresent, kindHistory: sectionAbsent,
	}
	checkStates(t, "always", scanWith(t), always)

	checkStates(t, "NET_ADMIN and NET_RAW", scanWith(t, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW), map[offrampv1.SectionKind]offrampv1.SectionState{
		kindIPSets: sectionPresent, kindNFT: sectionPresent, kindKubeProxy: sectionUnreadable, kindAddresses: sectionEmpty,
	})
	neither := scanWith(t)
	checkStates(t, "neither", neither, map[offrampv1.SectionKind]offrampv1.SectionState{
		kindIPSets: sectionUnreadable, kindNFT: sectionUnreadable, kindNFTIPv4: sectionUnreadable, kindKubeProxy: sectionUnreadable,
		kindAddresses: sectionEmpty,
	})
	if content := facts.Find(neither, kindKubeProxy).GetStable().GetKubeProxy(); content.GetHostProcessesVisible() {
		t.Error("the processes of the host are in sight from another PID namespace")
	}
	startKubelet(t)
	checkStates(t, "neither, but a kubelet in sight", scanWith(t), map[offrampv1.SectionKind]offrampv1.SectionState{
		kindKubeProxy: sectionAbsent, kindIPSets: sectionUnreadable,
	})
}

// startKubelet starts a process of that name: with it in sight, this is the node's PID namespace.
func startKubelet(t *testing.T) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	// A process has the name that its program was started by, also when that is a link.
	at := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(sleep, at); err != nil {
		t.Fatal(err)
	}
	kubelet := exec.CommandContext(t.Context(), at, "60")
	kubelet.Args[0] = "sleep" // busybox goes by it
	if err := kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kubelet.Process.Kill()
		_ = kubelet.Wait()
	})
}
