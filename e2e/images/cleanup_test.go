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
	before := look(t, tools()...)
	leftBehind(t, cleaned)
	dirty := look(t, tools()...)
	if strings.Count(dirty, "\n-A KUBE-") < 800 {
		t.Fatalf("only %d rules of kube-proxy to remove", strings.Count(dirty, "\n-A KUBE-"))
	}
	n.inspects(t)
	if diff := cmp.Diff(dirty, look(t, tools()...)); diff != "" {
		t.Errorf("inspect changed something:\n%s", diff)
	}
	out, code := n.agent(apply()...)
	if code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if diff := cmp.Diff(before, look(t, tools()...)); diff != "" {
		t.Errorf("before kube-proxy (-), after the clean-up (+):\n%.4000s", diff)
	}
	if log := n.stateFile("audit.log"); strings.Count(log, "\n") != 1 {
		t.Errorf("the audit log has not one line: %s", log)
	}
}

func apply() []string {
	return []string{
		"cleanup", "apply", "--host-root", "/host", "--proc-root", "/host/proc", "--target", "none",
		"--assert-no-kube-proxy", "a test made this node", "--yes", "-o", "json",
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

// What the image has is needed: without an extension that kube-proxy uses, without one that somebody else uses, and without a
// library of one, the program does not print the table: the agent says so and changes nothing, in the other backend neither.
func TestAgentImageNeedsItsExtensions(t *testing.T) {
	n, inside := enterNode(t)
	if !inside {
		return
	}
	for _, name := range tools() {
		tool(t, foreign, name+"-restore", "--noflush")
	}
	leftBehind(t, cleaned)
	dirty := look(t, tools()...)
	for _, without := range []string{"xtables/libxt_recent.so", "xtables/libxt_string.so", "libm.so.6"} {
		hidden := "/dev/null:/usr/lib/" + machine() + "/" + without + ":ro"
		out, code := n.run(tested().Name(Agent), []string{"-v", hidden}, apply()...)
		if code == 0 || code == 3 {
			t.Errorf("without %s: exit code %d: %s", without, code, out)
		}
		if diff := cmp.Diff(dirty, look(t, tools()...)); diff != "" {
			t.Errorf("without %s something changed:\n%.2000s", without, diff)
		}
	}
	if out, code := n.agent(apply()...); code != 0 || strings.Contains(look(t, "iptables-legacy"), "KUBE-SVC-") {
		t.Errorf("with all of them: exit code %d: %s", code, out)
	}
}

// Nobody gets a prompt in a container of either, and both start, without capabilities of their own and with nothing to write to.
func TestImagesRun(t *testing.T) {
	n, inside := enterNode(t)
	if !inside {
		return
	}
	for _, image := range []string{Agent, Aggregator} {
		name := tested().Name(image)
		if out, code := n.run(name, nil, "version"); code != 0 || !strings.Contains(out, open(t, image).Config.Config.Labels["org.opencontainers.image.version"]) {
			t.Errorf("%s version: exit code %d: %s", image, code, out)
		}
		out, err := n.daemon.Run(t.Context(), nil, "run", "--rm", "--network", "host", "--entrypoint", "sh", name, "-c", "echo here")
		if err == nil || !strings.Contains(err.Error(), "executable file not found") {
			t.Errorf("sh in %s: %v: %s", image, err, out)
		}
	}
}
