package images

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// cleaned is the state that kube-proxy --cleanup leaves when nothing runs any more: no IPVS, so that a host without it can hold it.
const cleaned = "ipvs-then-iptables-cleanup"

// foreign is what somebody else has in the tables that kube-proxy used, with extensions that kube-proxy does not use.
const foreign = `*mangle
:theirs - [0:0]
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
COMMIT
*nat
:theirs - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j theirs
-A theirs -p tcp -m multiport --dports 80,443 -j RETURN
COMMIT
*filter
:theirs - [0:0]
-A INPUT -p 112 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -m hashlimit --hashlimit-upto 5/min --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name ssh -j theirs
-A theirs -m string --string "a b" --algo bm -j DROP
COMMIT
`

// The agent's image cleans a node as its own binary does: rules of both backends and families go, the legacy ones through the
// iptables of the image, and the host's iptables then prints what it printed before kube-proxy was there.
func TestAgentImageCleansANode(t *testing.T) {
	n, inside := enterNode(t)
	if !inside {
		return
	}
	for _, name := range tools() {
		tool(t, foreign, name+"-restore", "--noflush")
	}
	before := look(t)
	leftBehind(t, cleaned)
	dirty := look(t)
	if strings.Count(dirty, "\n-A KUBE-") < 1000 {
		t.Fatalf("only %d rules of kube-proxy to remove", strings.Count(dirty, "\n-A KUBE-"))
	}
	n.inspects(t)
	if diff := cmp.Diff(dirty, look(t)); diff != "" {
		t.Errorf("inspect changed something:\n%s", diff)
	}
	out, code := n.agent("cleanup", "apply", "--host-root", "/host", "--proc-root", "/host/proc", "--target", "none",
		"--assert-no-kube-proxy", "a test made this node", "--yes", "-o", "json")
	if code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after the clean-up (+):\n%.4000s", diff)
	}
	if log := n.stateFile("audit.log"); strings.Count(log, "\n") != 1 {
		t.Errorf("the audit log has not one line: %s", log)
	}
}

// inspects holds that the image reads as many rules as the host's own tools print.
func (n *node) inspects(t *testing.T) {
	t.Helper()
	out, code := n.agent("inspect", "--host-root", "/host", "--proc-root", "/host/proc", "--target", "none", "-o", "json")
	said := &offrampv1.GetNodeResponse{}
	if err := protojson.Unmarshal([]byte(out), said); err != nil || code != 0 {
		t.Fatalf("inspect: exit code %d: %v: %s", code, err, out)
	}
	got := map[string]int{}
	for _, section := range said.GetFacts().GetSections() {
		name, wanted := sectionTools()[section.GetKind()]
		if !wanted {
			continue
		}
		for _, table := range section.GetStable().GetIptables().GetTables() {
			got[name] += int(table.GetRules())
		}
	}
	want := map[string]int{}
	for _, name := range tools() {
		want[name] = strings.Count(tool(t, "", name+"-save"), "\n-A ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules that the host's tools print (-), that the image's inspect counts (+):\n%s", diff)
	}
}

func sectionTools() map[offrampv1.SectionKind]string {
	return map[offrampv1.SectionKind]string{
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4: "iptables-legacy",
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6: "ip6tables-legacy",
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4:    "iptables-nft",
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6:    "ip6tables-nft",
	}
}
