package stream

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestBackoff(t *testing.T) {
	highest := &backoff{first: 2 * time.Second, most: time.Minute, rand: func() float64 { return 1 }}
	var got []time.Duration
	for range 7 {
		got = append(got, highest.next())
	}
	if want := "[2s 4s 8s 16s 32s 1m0s 1m0s]"; fmt.Sprint(got) != want {
		t.Errorf("pauses %v, want %s", got, want)
	}
	highest.reset()
	if got := highest.next(); got != 2*time.Second {
		t.Errorf("after reset %v", got)
	}
	highest.within(3 * time.Second)
	if got := highest.next(); got != 3*time.Second {
		t.Errorf("within 3 s: %v", got)
	}
	highest.within(time.Second)
	highest.reset()
	if got := highest.next(); got != time.Second {
		t.Errorf("within a second, less than the first pause: %v", got)
	}
	lowest := &backoff{first: 2 * time.Second, most: time.Minute, rand: func() float64 { return 0 }}
	if got := lowest.next(); got != 400*time.Millisecond {
		t.Errorf("lowest %v", got)
	}
}

func TestJitter(t *testing.T) {
	for number, want := range map[float64]time.Duration{0: 27 * time.Second, 0.5: 30 * time.Second, 1: 33 * time.Second} {
		if got := jitter(30*time.Second, func() float64 { return number }); got != want {
			t.Errorf("%v: %v, want %v", number, got, want)
		}
	}
}

func TestHeartbeatInterval(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: time.Minute, -time.Second: time.Minute, time.Millisecond: 100 * time.Millisecond,
		5 * time.Second: 5 * time.Second, 100 * time.Hour: time.Hour,
	} {
		if got := heartbeatInterval(&v1.Welcome{HeartbeatInterval: durationpb.New(asked)}); got != want {
			t.Errorf("asked for %v: %v, want %v", asked, got, want)
		}
	}
	if got := heartbeatInterval(&v1.Welcome{}); got != time.Minute {
		t.Errorf("not asked: %v", got)
	}
}

func TestLargeReportsAreSplit(t *testing.T) {
	taken := &snapshot{}
	for _, kind := range facts.Kinds() {
		taken.sections = append(taken.sections, section{kind: kind, encoded: make([]byte, 300<<10)})
	}
	reports := sent{}.reports(taken)
	var covered int
	for _, report := range reports {
		covered += len(report.GetSections())
		whole := &v1.ConnectRequest{Message: &v1.ConnectRequest_Report{Report: report}}
		if size := proto.Size(whole); size > maxMessage {
			t.Errorf("a report of %d bytes", size)
		}
	}
	if covered != len(facts.Kinds()) || len(reports) != 5 {
		t.Errorf("%d sections in %d reports", covered, len(reports))
	}
	// The largest section that there may be still fits.
	if got := (sent{}).reports(&snapshot{sections: []section{{kind: 1, encoded: make([]byte, facts.MaxSectionBytes)}}}); len(got) != 1 {
		t.Errorf("%d reports", len(got))
	}
}

// A section that an aggregator would refuse must not cost the node its stream.
func TestSectionsOutOfBoundsBecomeUnreadable(t *testing.T) {
	long := &v1.SectionStable{State: present, Content: &v1.SectionStable_Sysctls{Sysctls: &v1.SysctlsFacts{}}}
	for range 128 {
		long.GetSysctls().Values = append(long.GetSysctls().Values, &v1.Sysctl{
			Path: strings.Repeat("p", 1024), Value: strings.Repeat("v", 1024), Error: strings.Repeat("e", 1024), IpvsModeValue: strings.Repeat("i", 1024), State: present,
		})
	}
	read := map[string]*v1.Section{
		"10 million sets": {Kind: sets, Stable: setsOf(10_000_000)},
		"no state":        {Kind: sets, Stable: &v1.SectionStable{}},
		"not UTF-8":       {Kind: sets, Stable: &v1.SectionStable{State: v1.SectionState_SECTION_STATE_UNREADABLE, Error: "\xff"}},
		"too large":       {Kind: v1.SectionKind_SECTION_KIND_SYSCTLS, Stable: long},
	}
	for name, section := range read {
		t.Run(name, func(t *testing.T) {
			taken := newSnapshot(&v1.NodeFacts{Sections: []*v1.Section{section}}, time.Now(), slog.New(slog.DiscardHandler))
			got, err := facts.Decode(section.GetKind(), taken.sections[0].encoded)
			if err != nil {
				t.Fatal(err)
			}
			if got.GetState() != v1.SectionState_SECTION_STATE_UNREADABLE || got.GetError() == "" {
				t.Errorf("got %v", got)
			}
			if taken.sections[0].digest != facts.Sum(taken.sections[0].encoded) {
				t.Error("the digest is of something else")
			}
		})
	}
	odd := &v1.Section{Kind: sets, Stable: setsOf(1), Volatile: &v1.SectionVolatile{Content: &v1.SectionVolatile_Ipvs{}}}
	taken := newSnapshot(&v1.NodeFacts{Sections: []*v1.Section{odd}}, time.Now(), slog.New(slog.DiscardHandler))
	if taken.sections[0].volatile != nil {
		t.Error("another section's volatile part was kept")
	}
}

// Agents that lost their aggregator come back spread over a third of the heartbeat interval, and the bound still doubles.
func TestALossIsSpread(t *testing.T) {
	b := &backoff{first: 2 * time.Second, most: time.Minute, rand: func() float64 { return 1 }}
	b.within(time.Minute)
	b.spread(20 * time.Second)
	for i, want := range []time.Duration{20 * time.Second, 40 * time.Second, time.Minute} {
		if got := b.next(); got != want {
			t.Errorf("pause %d: %s, want %s", i, got, want)
		}
	}
	b.spread(time.Second)
	if b.reset(); b.next() != 20*time.Second {
		t.Error("a short interval makes the first pause shorter")
	}
}

// A large fleet is asked to come back later than that; nobody can ask for hours.
func TestReturningWithinWhatTheWelcomeAsks(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		80 * time.Second: 80 * time.Second, -time.Second: 20 * time.Second, 0: 20 * time.Second, 24 * time.Hour: 5 * time.Minute,
	} {
		if got := returnWithin(&v1.Welcome{ReturnWithin: durationpb.New(asked)}, 20*time.Second); got != want {
			t.Errorf("asked to come back within %s: %s, want %s", asked, got, want)
		}
	}
	if got := returnWithin(&v1.Welcome{}, 20*time.Second); got != 20*time.Second {
		t.Errorf("asked for nothing: %s", got)
	}
}
