package collect

import (
	"context"
	"testing"
	"time"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/leaktest"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// watched is a Watcher that runs, and the scan before.
type watched struct {
	*Watcher
	t      *testing.T
	before *offrampv1.NodeFacts
}

// watch starts one and waits until it listens and has read everything since.
func watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, Watcher: New(Config{Host: DefaultHost(), KubeProxy: nowhere(t)}).Watch(WatchConfig{Debounce: 50 * time.Millisecond})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Run does not end with its context")
		}
	})
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		listening := w.listening
		w.mu.Unlock()
		if listening {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not listen")
		}
	}
	w.scan()
	w.settle()
	return w
}

func (w *watched) scan() { w.before = w.Scan(w.t.Context()) }

// settle takes what is still announced of what the test itself did.
func (w *watched) settle() {
	w.t.Helper()
	for {
		select {
		case <-w.Changes():
			w.scan()
		case <-time.After(500 * time.Millisecond):
			w.scan()
			return
		}
	}
}

// announced waits for a change to be announced and scans.
func (w *watched) announced(what string) *offrampv1.NodeFacts {
	w.t.Helper()
	select {
	case <-w.Changes():
	case <-time.After(5 * time.Second):
		w.t.Fatalf("%s: nothing was announced", what)
	}
	return w.Scan(w.t.Context())
}

// fresh returns the kinds that a scan read again.
func (w *watched) fresh(node *offrampv1.NodeFacts) map[offrampv1.SectionKind]bool {
	fresh := map[offrampv1.SectionKind]bool{}
	for _, section := range node.GetSections() {
		if facts.Find(w.before, section.GetKind()) != section {
			fresh[section.GetKind()] = true
		}
	}
	return fresh
}

func (w *watched) want(what string, node *offrampv1.NodeFacts, kinds ...offrampv1.SectionKind) {
	w.t.Helper()
	fresh := w.fresh(node)
	for _, kind := range alwaysKinds() {
		delete(fresh, kind)
	}
	delete(fresh, kindNFTIPv4)
	delete(fresh, kindNFTIPv6)
	for _, kind := range kinds {
		if !fresh[kind] {
			w.t.Errorf("%s: %v was not read", what, kind)
		}
		delete(fresh, kind)
	}
	for kind := range fresh {
		w.t.Errorf("%s: %v was read", what, kind)
	}
}

// What the kernel announces is read soon, and nothing else; what is not read keeps its time.
func TestWatching(t *testing.T) {
	nstest.NeedTool(t, "ipset", "nft")
	nstest.NeedKernel(t, "ip_set", "nf_tables")
	if !enterWithAnyLink(t) {
		return
	}
	leaktest.Check(t)
	w := watch(t)
	again := w.Scan(t.Context())
	w.want("nothing", again)
	if len(again.GetSections()) != len(facts.Kinds()) {
		t.Errorf("%d sections", len(again.GetSections()))
	}

	run(t, "", "ip", "addr", "add", "10.96.0.10/32", "dev", "kube-ipvs0")
	node := w.announced("an address")
	w.want("an address", node, networkKinds()...)
	if got := facts.Find(node, kindIPVSLink).GetStable().GetIpvsLink().GetIpv4Addresses(); got != 1 {
		t.Errorf("%d addresses", got)
	}
	w.settle()

	run(t, "", "ip", "link", "set", "kube-ipvs0", "up")
	node = w.announced("a link")
	if !facts.Find(node, kindIPVSLink).GetStable().GetIpvsLink().GetUp() {
		t.Error("the link is up and not said to be")
	}
	w.settle()

	run(t, "", "nft", "add", "table", "ip", "kube-proxy")
	node = w.announced("a table")
	w.want("a table", node)
	if got := facts.Find(node, kindNFT).GetStable().GetNftables().GetTables(); got != 1 {
		t.Errorf("%d tables", got)
	}
	w.settle()

	// Not announced: the next scan sees it by the headers.
	run(t, "", "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port")
	node = w.Scan(t.Context())
	w.want("a set", node, kindIPVS, kindIPSets)
	if got := facts.Find(node, kindIPSets).GetStable().GetIpsets().GetSets(); got != 1 {
		t.Errorf("%d sets", got)
	}
	w.before = node
	run(t, "", "ipset", "add", "KUBE-CLUSTER-IP", "10.96.0.1,tcp:443")
	node = w.Scan(t.Context())
	w.want("a member", node, kindIPVS, kindIPSets)
	if got := facts.Find(node, kindIPSets).GetStable().GetIpsets().GetEntries(); got != 1 {
		t.Errorf("%d members", got)
	}
	w.before = node
	w.want("nothing again", w.Scan(t.Context()))
}

// Pods come and go: their links concern nobody, their link-local addresses the list of addresses alone.
func TestWatchingAmongPods(t *testing.T) {
	if !enterWithAnyLink(t) {
		return
	}
	w := watch(t)
	run(t, "", "ip", "link", "add", "veth1", "type", "bridge")
	time.Sleep(300 * time.Millisecond)
	w.want("a link of a pod", w.Scan(t.Context()))
	run(t, "", "ip", "addr", "add", "169.254.7.7/32", "dev", "veth1", "scope", "link")
	w.want("a link-local address", w.announced("a link-local address"), kindAddresses, kindIPVSLink) // and its local route
}

// A section is read again when it is old, unreadable or never was.
func TestWatchingReadsWhatIsOldOrFailed(t *testing.T) {
	now := time.Now()
	w := New(Config{Host: DefaultHost()}).Watch(WatchConfig{Full: 10 * time.Minute})
	w.last[kindHost], w.readAt[kindHost] = absent(kindHost), now.Add(-time.Minute)
	due := map[offrampv1.SectionKind]bool{}
	if w.isDue(kindHost, due, now) {
		t.Error("a minute is not long")
	}
	if !w.isDue(kindHost, due, now.Add(9*time.Minute)) || !w.isDue(kindHost, due, now.Add(-time.Hour)) {
		t.Error("ten minutes are long, and a clock that was set back tells nothing")
	}
	if !w.isDue(kindKernel, due, now) {
		t.Error("what was never read")
	}
	w.last[kindHost] = failed(kindHost, errTorn)
	if !w.isDue(kindHost, due, now) {
		t.Error("what could not be read")
	}
	w.last[kindIPVS], w.readAt[kindIPVS] = read(kindIPVS, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Ipvs{Ipvs: &offrampv1.IpvsFacts{AttributionError: "not permitted"}},
	}), now
	if !w.isDue(kindIPVS, due, now) {
		t.Error("what could not be attributed")
	}
	due[kindKernel] = true
	if w.last[kindKernel] = absent(kindKernel); !w.isDue(kindKernel, due, now) {
		t.Error("what was announced")
	}
}

// Without anybody who listens, what would be announced is read each time.
func TestScansWithoutListening(t *testing.T) {
	if !enterWithAnyLink(t) {
		return
	}
	w := New(Config{Host: DefaultHost(), KubeProxy: nowhere(t)}).Watch(WatchConfig{})
	w.Scan(t.Context())
	run(t, "", "ip", "addr", "add", "10.96.0.10/32", "dev", "kube-ipvs0")
	if got := facts.Find(w.Scan(t.Context()), kindIPVSLink).GetStable().GetIpvsLink().GetIpv4Addresses(); got != 1 {
		t.Errorf("%d addresses", got)
	}
}
