package collect

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// keepBusy runs work over and over until the returned function is called, which returns how often it went well.
func keepBusy(work func() bool) (stop func() int) {
	ended := make(chan struct{})
	var owner sync.WaitGroup
	rounds := 0
	owner.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				if work() {
					rounds++
				}
			}
		}
	})
	return func() int {
		close(ended)
		owner.Wait()
		return rounds
	}
}

func feed(stdin, name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Stdin = strings.NewReader(stdin)
	return command.Run()
}

// While elements, and sets and rules that hold them, come and go, and transactions fail, the list of Services and the
// holders of sets are right, or said not to be known.
func TestServicesAndHoldersUnderChurn(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft", "iptables-nft-restore", "ipset")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_set")
	const permanent, moving = 3000, 200
	list := func(network, count int) string {
		var elements []string
		for i := range count {
			elements = append(elements, fmt.Sprintf("10.%d.%d.%d . tcp . 80 : drop", network, i>>8, i&255))
		}
		return "ip kube-proxy service-ips { " + strings.Join(elements, ", ") + " }\n"
	}
	run(t, "table ip kube-proxy {\nmap service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }\n}\nadd element "+list(96, permanent), "nft", "-f", "-")
	restoreSets(t, "create KUBE-CLUSTER-IP hash:ip,port\ncreate last hash:ip\n")
	run(t, "*filter\n:A - [0:0]\n-A A -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\n-A A -m set --match-set KUBE-CLUSTER-IP dst,dst -j DROP\nCOMMIT\n", "iptables-nft-restore")
	stops := []func() int{
		keepBusy(func() bool {
			return feed("add element "+list(97, moving), "nft", "-f", "-") == nil && feed("delete element "+list(97, moving), "nft", "-f", "-") == nil
		}),
		keepBusy(func() bool {
			return feed("add element "+list(98, moving)+"delete chain ip kube-proxy none\n", "nft", "-f", "-") != nil
		}),
		keepBusy(func() bool {
			return feed("create moving hash:ip\n", "ipset", "restore") == nil &&
				feed("*filter\n:B - [0:0]\n-A B -m set --match-set moving src -j DROP\nCOMMIT\n", "iptables-nft-restore", "--noflush") == nil &&
				feed("*filter\n:B - [0:0]\n-X B\nCOMMIT\n", "iptables-nft-restore", "--noflush") == nil &&
				feed("destroy moving\n", "ipset", "restore") == nil
		}),
	}
	rules := newRuleReader(DefaultHost(), newModules(DefaultHost()))
	states := map[offrampv1.SectionState]int{}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		sections := rules.readNFT(ctx)
		late := ctx.Err() != nil // in a guest that runs in software
		cancel()
		states[sections[2].GetStable().GetState()]++
		if late || sections[2].GetStable().GetState() == isInconsistent {
			continue
		}
		if count := sections[2].GetStable().GetNftables().GetList().GetCount(); count != permanent && count != permanent+moving {
			t.Errorf("%d Services, want %d or %d (%v)", count, permanent, permanent+moving, sections[2].GetStable().GetError())
		}
		held := rules.joinHolders(readTheIPSets(t.Context())).GetStable().GetIpsets().GetSamples()
		for _, set := range held {
			if set.GetName() == "KUBE-CLUSTER-IP" && (len(set.GetHolders()) != 1 || set.GetHolders()[0].GetRules() != 2) || set.GetName() == "last" && set.GetHolders() != nil {
				t.Errorf("set %v", set)
			}
		}
	}
	for _, stop := range stops {
		if stop() == 0 {
			t.Error("nothing was tried")
		}
	}
	t.Logf("readings by state: %v", states)
	if states[isPresent]+states[isInconsistent] == 0 || len(states) > 2 {
		t.Errorf("states %v", states)
	}
}
