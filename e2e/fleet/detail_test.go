package fleet

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/internal/nstest"
)

// oddName is a set's name that a shell, a terminal and a careless program would take for something else.
const oddName = "$(reboot)`x`;\x1b[2J"

const oneService = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ERIFXISQEP7F7OF4 - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "kube-system/kube-dns:dns-tcp cluster IP" -m tcp --dport 53 -j KUBE-SVC-ERIFXISQEP7F7OF4
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j RETURN
-A KUBE-SVC-ERIFXISQEP7F7OF4 -m comment --comment "kube-system/kube-dns:dns-tcp -> 10.244.0.2:53" -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination 10.244.0.2:53
COMMIT
`

// What the native tools list is what comes through agent, stream, aggregator and kubectl-offramp, line by line.
func TestDetailsAreWhatTheNativeToolsList(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-nft-save")
	nstest.NeedKernel(t, "nf_tables", "nft_compat")
	s.leave(oddName, "hash:ip,port")
	s.feed("add KUBE-CLUSTER-IP 10.96.0.1,tcp:443\nadd KUBE-CLUSTER-IP 10.96.0.10,udp:53\n"+
		manyMembers(50_000)+"add \""+oddName+"\" 192.0.2.1,tcp:80\n", "ipset", "restore")
	s.feed(oneService, "iptables-nft-restore")

	for _, set := range []string{"KUBE-CLUSTER-IP", oddName} {
		s.sameLines(set, ofSet(s.native("ipset", "save", set)), s.detail("ipset", "node-a", set))
	}
	saved := s.native("iptables-nft-save", "-t", "nat")
	for _, chain := range []string{"KUBE-SERVICES", "KUBE-SVC-ERIFXISQEP7F7OF4", "KUBE-SEP-AAAAAAAAAAAAAAAA"} {
		s.sameLines(chain, ofChain(saved, chain), s.detail("chain", "node-b", "iptables-nft-ipv4", "nat", chain))
	}
	s.service()
	for _, missing := range [][]string{
		{"ipset", "node-a", "KUBE-CLUSTER-I"}, {"ipset", "node-a", "$(reboot)"}, {"chain", "node-a", "iptables-nft-ipv4", "nat", "KUBE-SERVICE"},
		{"ipset", "nobody", "KUBE-CLUSTER-IP"},
	} {
		if out, code := s.ask(append([]string{"detail"}, missing...)...); code != 1 || out != "" {
			t.Errorf("%q: exit code %d, %q", missing, code, out)
		}
	}
	// A node that is gone is not there to be asked.
	s.agents["node-c"].kill(t)
	_, wrong := s.until(5*time.Second, func() string {
		if _, code := s.ask("detail", "ipset", "node-c", "KUBE-CLUSTER-IP"); code != 1 {
			return "a node that is gone answers"
		}
		return ""
	})
	if wrong != "" {
		t.Error(wrong)
	}
	s.native("ipset", "destroy", oddName)
	s.tearDown()
}

// service wants one Service's rules, and no other's.
func (s *stage) service() {
	s.Helper()
	got := strings.Join(s.detail("service", "node-c", "tcp", "10.96.0.10:53"), "\n")
	for _, wanted := range []string{"-d 10.96.0.10/32", "-A KUBE-SVC-ERIFXISQEP7F7OF4", "--to-destination 10.244.0.2:53"} {
		if !strings.Contains(got, wanted) {
			s.Errorf("the Service lacks %q:\n%s", wanted, got)
		}
	}
	if strings.Contains(got, "10.96.0.1/32") {
		s.Errorf("another Service is in it:\n%s", got)
	}
}

// detail asks for one thing in JSON, which keeps every byte.
func (s *stage) detail(args ...string) []string {
	s.Helper()
	out, code := s.ask(append([]string{"detail", "-o", "json"}, args...)...)
	if code != 0 {
		s.Fatalf("detail %q: exit code %d", args, code)
	}
	var items []string
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		var item string
		if err := json.Unmarshal(lines.Bytes(), &item); err != nil {
			s.Fatalf("detail %q: %v", args, err)
		}
		items = append(items, item)
	}
	return items
}

func (s *stage) sameLines(what string, native, got []string) {
	s.Helper()
	slices.Sort(native)
	slices.Sort(got)
	if len(native) == 0 || !slices.Equal(native, got) {
		s.Errorf("%q: the native tool lists %d lines, offramp %d; the first: %.3q and %.3q", what, len(native), len(got), native[:min(3, len(native))], got[:min(3, len(got))])
	}
}

func (s *stage) feed(text string, argv ...string) {
	s.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v: %v: %s", argv, err, out)
	}
}

func manyMembers(count int) string {
	var text strings.Builder
	for i := range count {
		text.WriteString("add KUBE-CLUSTER-IP 10.97." + octet(i>>8) + "." + octet(i) + ",tcp:80\n")
	}
	return text.String()
}

func octet(i int) string { return strconv.Itoa(i & 255) }

// ofSet keeps the members of what ipset save prints, without the quotes that it puts around an odd name.
func ofSet(saved string) []string {
	var members []string
	for line := range strings.Lines(saved) {
		if strings.HasPrefix(line, "add ") {
			members = append(members, strings.TrimSpace(strings.ReplaceAll(line, `"`, "")))
		}
	}
	return members
}

func ofChain(saved, chain string) []string {
	var rules []string
	for line := range strings.Lines(saved) {
		if strings.HasPrefix(line, "-A "+chain+" ") {
			rules = append(rules, strings.TrimSpace(line))
		}
	}
	return rules
}
