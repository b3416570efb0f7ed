package publish

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	nftables = v1.Target_TARGET_NFTABLES
	iptables = v1.Target_TARGET_IPTABLES
)

func noon() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// look is a node as one round sees it.
func look(name string, at time.Time, assessment *v1.Assessment, entries ...*v1.HistoryEntry) fleet.Look {
	history := &v1.HistoryFacts{Entries: entries}
	l := fleet.Look{
		Summary: &v1.NodeSummary{Node: name, LastSeen: timestamppb.New(at), Assessment: assessment},
		History: func() *v1.HistoryFacts { return history },
	}
	l.HistoryDigest = facts.Sum([]byte(fmt.Sprint(history)))
	return l
}

func entry(at time.Time, kind, what string, end v1.RunEnd) *v1.HistoryEntry {
	return &v1.HistoryEntry{At: timestamppb.New(at), Kind: kind, What: what, End: end}
}

// judged is an assessment with blockers: "id" for one that counts, "id?" for one that is undecided, "id!" for one that is accepted.
func judged(phase v1.Phase, left *v1.Leftovers, blockers ...string) *v1.Assessment {
	a := &v1.Assessment{Phase: phase, Leftovers: left, RunningMode: v1.ProxyMode_PROXY_MODE_NFTABLES}
	for _, id := range blockers {
		finding := &v1.Finding{Id: strings.TrimRight(id, "?!"), Severity: v1.Severity_SEVERITY_BLOCKER, Title: "title", Undecided: strings.HasSuffix(id, "?")}
		if strings.HasSuffix(id, "!") {
			finding.Accepted = &v1.Acceptance{}
		}
		a.Findings = append(a.Findings, finding)
	}
	return a
}

func said(items []item) string {
	var all []string
	for _, one := range items {
		all = append(all, fmt.Sprint(one.node, " ", one.reason, " ", one.note))
	}
	return strings.Join(all, "|")
}

// What a replica sees first is where it begins; what comes after it is news, once.
func TestObserver(t *testing.T) {
	const done, open, partial = v1.RunEnd_RUN_END_COMPLETE, v1.RunEnd_RUN_END_OPEN, v1.RunEnd_RUN_END_PARTIAL
	before := entry(noon().Add(-time.Hour), "mode", "iptables to ipvs", 0)
	dirty, none, unsure := &v1.Leftovers{VirtualServers: 85, Links: 1}, &v1.Leftovers{}, &v1.Leftovers{Undecided: true}
	at := func(seconds int) time.Time { return noon().Add(time.Duration(seconds) * time.Second) }
	on := func(seconds int, a *v1.Assessment, entries ...*v1.HistoryEntry) fleet.Look {
		return look("a", at(seconds), a, append([]*v1.HistoryEntry{before}, entries...)...)
	}
	const ipvs, switched, finished, silent = v1.Phase_PHASE_ON_IPVS, v1.Phase_PHASE_SWITCHED_DIRTY, v1.Phase_PHASE_DONE, v1.Phase_PHASE_SILENT
	type round struct {
		second int
		look   fleet.Look
		want   string
	}
	begin := round{0, on(0, judged(ipvs, none)), ""}
	for name, rounds := range map[string][]round{
		"a node that is dirty from the start": {
			{0, on(0, judged(switched, dirty, "kernel-too-old")), ""},
			{100, on(100, judged(switched, dirty, "kernel-too-old")), ""},
		},
		"the sections of a first report come one after the other": {
			{0, on(0, judged(v1.Phase_PHASE_UNKNOWN, unsure, "kernel-too-old?")), ""},
			{20, on(20, judged(switched, dirty, "kernel-too-old")), ""},
			{100, on(100, judged(switched, dirty, "kernel-too-old")), ""},
		},
		"a switch": {
			begin,
			{100, on(100, judged(switched, dirty), entry(at(95), "mode", "ipvs to nftables", 0)),
				"a ProxyModeSwitched kube-proxy's mode: ipvs to nftables|a LeftoversFound left of another mode: 85 virtual servers, 1 link"},
			{105, on(105, judged(switched, dirty), entry(at(95), "mode", "ipvs to nftables", 0)), ""},
		},
		"a switch right after the start": {
			begin,
			{5, on(5, judged(ipvs, none), entry(at(3), "mode", "ipvs to nftables", 0)), "a ProxyModeSwitched kube-proxy's mode: ipvs to nftables"},
		},
		"a clean-up, while it runs and after": {
			begin,
			{10, on(10, judged(ipvs, none), entry(at(8), "clean-up", "begun, and its end is not recorded", open)), ""},
			{20, on(20, judged(ipvs, none), entry(at(18), "clean-up", "3 operations done, 0 remain", done)), "a CleanupFinished 3 operations done, 0 remain"},
			{30, on(30, judged(ipvs, none), entry(at(18), "clean-up", "3 operations done, 0 remain", done), entry(at(28), "restore", "1 remains", partial)),
				"a RestoreFailed 1 remains"},
		},
		"what is no news, and what an agent of another version does not say": {
			begin,
			{10, on(10, judged(ipvs, none), entry(at(8), "boot", "kernel 6.1", 0), entry(at(9), "clean-up", "done", 0), entry(at(9), "poem", "x", done)), ""},
		},
		"a memory that is recalled late": {
			{0, look("a", at(0), judged(ipvs, none)), ""},
			{10, on(10, judged(ipvs, none)), ""},
			{20, on(20, judged(ipvs, none), entry(at(19), "mode", "ipvs to none", 0)), "a ProxyModeSwitched kube-proxy's mode: ipvs to none"},
		},
		"a blocker": {
			begin,
			{100, on(100, judged(ipvs, none, "kernel-too-old")), "a NewBlocker kernel-too-old: title"},
			{105, on(105, judged(ipvs, none, "kernel-too-old")), ""},
			{110, on(110, judged(ipvs, none)), ""},
			{115, on(115, judged(ipvs, none, "kernel-too-old")), "a NewBlocker kernel-too-old: title"},
		},
		"a blocker that cannot be told for a while": {
			begin,
			{100, on(100, judged(ipvs, none, "kernel-too-old")), "a NewBlocker kernel-too-old: title"},
			{105, on(105, judged(v1.Phase_PHASE_UNKNOWN, unsure, "kernel-too-old?")), ""},
			{110, on(110, judged(ipvs, none, "kernel-too-old")), ""},
		},
		"a blocker that somebody accepted until now": {
			{0, on(0, judged(ipvs, none, "kernel-too-old!")), ""},
			{100, on(100, judged(ipvs, none, "kernel-too-old")), "a NewBlocker kernel-too-old: title"},
		},
		"silence in between": {
			{0, on(0, judged(switched, dirty, "kernel-too-old")), ""},
			{100, on(0, judged(silent, dirty)), ""},
			{200, on(200, judged(switched, dirty, "kernel-too-old")), ""},
		},
		"leftovers that cannot be counted for a while": {
			{0, on(0, judged(switched, dirty)), ""},
			{100, on(100, judged(v1.Phase_PHASE_UNKNOWN, unsure)), ""},
			{105, on(105, judged(switched, dirty)), ""},
			{110, on(110, judged(finished, none)), ""},
			{115, on(115, judged(switched, dirty)), "a LeftoversFound left of another mode: 85 virtual servers, 1 link"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserver(time.Minute)
			for _, r := range rounds {
				o.begin(nftables, at(r.second))
				if got := said(o.look(r.look, at(r.second))); got != r.want {
					t.Errorf("after %d s: %q, want %q", r.second, got, r.want)
				}
				o.end()
			}
		})
	}
}

// Judged for another target, everything looks different: that is no news.
func TestAnotherTarget(t *testing.T) {
	o := newObserver(time.Minute)
	for second, r := range []struct {
		target v1.Target
		look   fleet.Look
		want   string
	}{
		{nftables, look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil)), ""},
		{iptables, look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil, "no-iptables")), ""},
		{iptables, look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil, "no-iptables", "other")), "a NewBlocker other: title"},
	} {
		now := noon().Add(time.Duration(second) * 100 * time.Second)
		o.begin(r.target, now)
		if got := said(o.look(r.look, now)); got != r.want {
			t.Errorf("round %d: %q, want %q", second, got, r.want)
		}
		o.end()
	}
}

// A node that was forgotten and comes back is one that is seen first.
func TestForgottenNodes(t *testing.T) {
	o := newObserver(time.Minute)
	round := func(minute int, looks ...fleet.Look) (news []item) {
		now := noon().Add(time.Duration(minute) * time.Minute)
		o.begin(nftables, now)
		for _, l := range looks {
			news = append(news, o.look(l, now)...)
		}
		o.end()
		return news
	}
	clean, dirty := judged(v1.Phase_PHASE_DONE, nil), judged(v1.Phase_PHASE_SWITCHED_DIRTY, &v1.Leftovers{Ipsets: 1}, "b")
	never := fleet.Look{Summary: &v1.NodeSummary{Node: "never", NeverSeen: true, Assessment: &v1.Assessment{}}}
	round(0, look("a", noon(), clean), never)
	if len(o.nodes) != 1 {
		t.Errorf("%d nodes are kept", len(o.nodes))
	}
	round(10)
	if len(o.nodes) != 0 {
		t.Errorf("%d nodes are kept of none", len(o.nodes))
	}
	if news := round(20, look("a", noon(), dirty)); len(news) != 0 {
		t.Errorf("news: %s", said(news))
	}
}

// A node's clock may be hours off: what it recalls is judged by its own clock.
func TestClockSkew(t *testing.T) {
	o := newObserver(time.Minute)
	ahead := func(l fleet.Look) fleet.Look {
		l.Summary.ClockSkew = durationpb.New(5 * time.Hour)
		return l
	}
	theirs := noon().Add(5 * time.Hour)
	o.begin(nftables, noon())
	o.look(ahead(look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil))), noon())
	late := ahead(look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil), entry(theirs.Add(-time.Hour), "mode", "old", 0), entry(theirs.Add(time.Second), "mode", "new", 0)))
	if got := said(o.look(late, noon())); got != "a ProxyModeSwitched kube-proxy's mode: new" {
		t.Errorf("news: %q", got)
	}
}

// One node that makes up what happened to it fills neither the queue nor the API server.
func TestANodeThatTellsTooMuch(t *testing.T) {
	o := newObserver(time.Minute)
	o.begin(nftables, noon())
	told := 0
	var entries []*v1.HistoryEntry
	for step := range 500 {
		now := noon().Add(time.Duration(step) * 7 * time.Second)
		entries = append(entries[max(0, len(entries)-50):], entry(now, "mode", fmt.Sprint(step), 0))
		told += len(o.look(look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil), entries...), now))
	}
	if told != 20 {
		t.Errorf("%d are told in an hour", told)
	}
	q := &queue{}
	for range 3000 {
		q.add(item{})
	}
	if dropped := q.forget(time.Time{}); len(q.items) != 1000 || dropped != 2000 {
		t.Errorf("%d are kept, %d dropped", len(q.items), dropped)
	}
}

func TestQueue(t *testing.T) {
	q := &queue{}
	q.add(item{node: "a", seen: noon()}, item{node: "b", seen: noon().Add(time.Minute)}, item{node: "c", seen: noon().Add(2 * time.Minute)})
	q.forget(noon().Add(time.Second))
	first, _ := q.take()
	q.back(first)
	again, _ := q.take()
	last, _ := q.take()
	if _, any := q.take(); first.node != "b" || again.node != "b" || last.node != "c" || any {
		t.Errorf("taken %q, %q, %q, and more %t", first.node, again.node, last.node, any)
	}
}

func TestResults(t *testing.T) {
	const apply, restore, plan = v1.OrderKind_ORDER_KIND_APPLY, v1.OrderKind_ORDER_KIND_RESTORE, v1.OrderKind_ORDER_KIND_PLAN
	const refused, failed, done = v1.OrderOutcome_ORDER_OUTCOME_REFUSED, v1.OrderOutcome_ORDER_OUTCOME_FAILED, v1.OrderOutcome_ORDER_OUTCOME_DONE
	for name, tt := range map[string]struct {
		result *v1.OrderResult
		want   string
	}{
		"refused":                      {&v1.OrderResult{Kind: apply, Outcome: refused}, "CleanupRefused"},
		"a restore that is refused":    {&v1.OrderResult{Kind: restore, Outcome: refused}, "RestoreRefused"},
		"a plan that is refused":       {&v1.OrderResult{Kind: plan, Outcome: refused}, ""},
		"done, which the node recalls": {&v1.OrderResult{Kind: apply, Outcome: done}, ""},
		"an error before anything":     {&v1.OrderResult{Kind: apply, Outcome: failed}, "CleanupFailed"},
		"failed half-way, as the node recalls": {
			&v1.OrderResult{Kind: apply, Outcome: failed, Cleanup: &v1.CleanupResult{}}, ""},
	} {
		tt.result.Id, tt.result.Message = "id", "why"
		news, ok := fromResult("a", tt.result)
		if news.reason != tt.want || ok != (tt.want != "") || ok && (news.key != "id" || news.note != "why" || news.node != "a" || !news.warning) {
			t.Errorf("%s: %+v, %t, want %q", name, news, ok, tt.want)
		}
	}
}

// What is put back comes to a queue that has filled up in the meantime: a result is noted while another is being written.
func TestAFullQueue(t *testing.T) {
	q := &queue{}
	q.add(make([]item, maxNews)...)
	taken, _ := q.take()
	q.add(item{node: "new"})
	q.back(taken)
	q.add(item{node: "newer"}, item{node: "newest"})
	if got, dropped := len(q.items), q.forget(time.Time{}); got != maxNews+1 || dropped != 2 {
		t.Errorf("%d items, and %d dropped", got, dropped)
	}
}
