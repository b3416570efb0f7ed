package collect

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Objects of iptables mode and of somebody else.
func TestAccountingObjects(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedKernel(t, "nfnetlink_acct")
	for _, name := range []string{"localhost_nps_accepted_pkts", "ct_state_invalid_dropped_pkts", "mine"} {
		const accountingNew = 0
		request := nl.NewNetlinkRequest(subsystemAccounting<<8|accountingNew, unix.NLM_F_CREATE|unix.NLM_F_ACK)
		request.AddData(&nl.Nfgenmsg{Version: nl.NFNETLINK_V0})
		request.AddData(nl.NewRtAttr(accountingName, append([]byte(name), 0)))
		if _, err := request.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
			t.Fatalf("make %s: %v", name, err)
		}
	}
	host := DefaultHost()
	got, err := readAccounting(t.Context(), newModules(host), readKernelModules(host, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []*offrampv1.OwnerCount{{Owner: "foreign:unidentified", Count: 1}, {Owner: "kube-proxy/iptables", Count: 2}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// On each of the lab's kernels everything that a mode needs is there under the name that we look for.
func TestFeaturesOfARealKernel(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedKernel(t, "ip_vs", "nft_compat") // which no host of ours has: a guest's module tree is Debian's
	host := DefaultHost()
	section := readHost(context.Background(), hostSurroundings{host: host, mods: newModules(host), cache: &fileCache{}})
	content := section.GetStable().GetHost()
	has := []offrampv1.FeatureState{featureLoaded, featureBuiltIn, featureLoadable}
	for _, feature := range content.GetFeatures() {
		if !slices.Contains(has, feature.GetState()) {
			t.Errorf("%s is %v (unreadable: %q)", feature.GetName(), feature.GetState(), content.GetUnreadable())
		}
	}
}

func TestParseAccounting(t *testing.T) {
	message := append([]byte{0, 0, 0, 0}, 9, 0, 1, 0, 'm', 'i', 'n', 'e', 0, 0, 0, 0)
	if name, err := parseAccounting(message); name != "mine" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	for _, broken := range [][]byte{nil, {0}, {0, 0, 0, 0, 3, 0, 1, 0}, {0, 0, 0, 0, 99, 0, 1, 0}} {
		if name, err := parseAccounting(broken); err == nil {
			t.Errorf("%v: %q", broken, name)
		}
	}
}
