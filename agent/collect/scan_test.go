package collect

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	sectionAbsent       = offrampv1.SectionState_SECTION_STATE_ABSENT
	sectionEmpty        = offrampv1.SectionState_SECTION_STATE_EMPTY
	sectionPresent      = offrampv1.SectionState_SECTION_STATE_PRESENT
	sectionUnreadable   = offrampv1.SectionState_SECTION_STATE_UNREADABLE
	sectionInconsistent = offrampv1.SectionState_SECTION_STATE_INCONSISTENT
)

// wantState checks the state of a section, and that an error is there exactly when the state asks for one.
func wantState(t *testing.T, section *offrampv1.Section, want offrampv1.SectionState) {
	t.Helper()
	if got := section.GetStable().GetState(); got != want {
		t.Errorf("section %v is %v, want %v (error %q)", section.GetKind(), got, want, section.GetStable().GetError())
	}
	needsError := want == sectionUnreadable || want == sectionInconsistent
	if hasError := section.GetStable().GetError() != ""; hasError != needsError {
		t.Errorf("section %v in state %v has the error %q", section.GetKind(), want, section.GetStable().GetError())
	}
}

func TestScanReturnsEverySectionInOrder(t *testing.T) {
	scanner := New(Config{Host: DefaultHost(), Node: "here", AgentVersion: "v0"})
	node := scanner.Scan(t.Context())
	if node.GetNode() != "here" || node.GetAgentVersion() != "v0" {
		t.Errorf("node %q, agent %q", node.GetNode(), node.GetAgentVersion())
	}
	if len(node.GetSections()) != 14 {
		t.Fatalf("%d sections, want 14", len(node.GetSections()))
	}
	for i, section := range node.GetSections() {
		if int(section.GetKind()) != i+1 {
			t.Errorf("section %d is %v", i, section.GetKind())
		}
		if section.GetStable().GetState() == offrampv1.SectionState_SECTION_STATE_UNSPECIFIED {
			t.Errorf("section %v has no state", section.GetKind())
		}
		volatile := section.GetVolatile()
		if volatile.GetReadAt() == nil || volatile.GetReadTook() == nil || volatile.GetAttempts() == 0 {
			t.Errorf("section %v is not signed: %v", section.GetKind(), volatile)
		}
		t.Logf("%v: %v", section.GetKind(), section)
	}
	wantState(t, facts.Find(node, kindHistory), sectionAbsent)
}

func TestScanIsStable(t *testing.T) {
	scanner := New(Config{Host: DefaultHost()})
	first, second := scanner.Scan(t.Context()), scanner.Scan(t.Context())
	for i, section := range first.GetSections() {
		_, before, err := facts.Encode(section.GetStable())
		_, after, err2 := facts.Encode(second.GetSections()[i].GetStable())
		if before != after || err != nil || err2 != nil {
			t.Errorf("section %v moved by itself:\n%v\n%v", section.GetKind(), section.GetStable(), second.GetSections()[i].GetStable())
		}
	}
}

func TestScanEndsWhenTheContextDoes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if node := New(Config{Host: DefaultHost()}).Scan(ctx); len(node.GetSections()) != 14 {
		t.Errorf("%d sections, want 14", len(node.GetSections()))
	}
}

func TestPerformGoesOnAfterABrokenReader(t *testing.T) {
	scanner := New(Config{Host: DefaultHost()})
	sections := scanner.perform(t.Context(), one(kindIPVS, func(context.Context) *offrampv1.Section {
		panic("surprise")
	}))
	wantState(t, sections[0], sectionUnreadable)
	if !strings.Contains(sections[0].GetStable().GetError(), "surprise") {
		t.Errorf("the error %q does not name the reason", sections[0].GetStable().GetError())
	}
}

func TestPerformLeavesAStuckReaderBehindOnce(t *testing.T) {
	scanner := New(Config{Host: DefaultHost(), SectionTimeout: 10 * time.Millisecond})
	release, started := make(chan struct{}), make(chan struct{}, 2)
	stuck := one(kindIPVS, func(context.Context) *offrampv1.Section {
		started <- struct{}{}
		<-release
		return absent(kindIPVS)
	})
	sections := scanner.perform(t.Context(), stuck)
	wantState(t, sections[0], sectionUnreadable)
	if want := "10ms"; !strings.Contains(sections[0].GetStable().GetError(), want) {
		t.Errorf("the error %q does not say %q", sections[0].GetStable().GetError(), want)
	}

	wantState(t, scanner.perform(t.Context(), stuck)[0], sectionUnreadable)
	if len(started) != 1 {
		t.Errorf("the stuck reader was started %d times", len(started))
	}
	wantState(t, scanner.perform(t.Context(), one(kindIPSets, func(context.Context) *offrampv1.Section {
		return absent(kindIPSets)
	}))[0], sectionAbsent)

	close(release)
	deadline := time.Now().Add(5 * time.Second)
	for scanner.perform(t.Context(), stuck)[0].GetStable().GetState() != sectionAbsent {
		if time.Now().After(deadline) {
			t.Fatal("the reader was not started again after it had come back")
		}
	}
}

// A reader that has answered is free for the next scan, however soon that comes.
func TestPerformAgainAtOnce(t *testing.T) {
	scanner := New(Config{Host: DefaultHost()})
	quick := one(kindIPVS, func(context.Context) *offrampv1.Section { return absent(kindIPVS) })
	for range 10_000 {
		if state := scanner.perform(t.Context(), quick)[0].GetStable().GetState(); state != sectionAbsent {
			t.Fatalf("a free reader is %v", state)
		}
	}
}

func TestPerformLetsAReaderSayItself(t *testing.T) {
	scanner := New(Config{Host: DefaultHost(), SectionTimeout: time.Millisecond})
	sections := scanner.perform(t.Context(), one(kindIPVS, func(ctx context.Context) *offrampv1.Section {
		<-ctx.Done()
		return failed(kindIPVS, errors.New("my own words"))
	}))
	if got := sections[0].GetStable().GetError(); got != "my own words" {
		t.Errorf("error %q", got)
	}
}

func TestListRefusesWhatItDoesNotHave(t *testing.T) {
	scanner := New(Config{Host: DefaultHost()})
	link := offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES
	if items, err := scanner.List(t.Context(), facts.ListDigest(link, nil)); err != nil || len(items) != 0 {
		t.Errorf("the list of no addresses: %q, %v", items, err)
	}
	if _, err := scanner.List(t.Context(), facts.ListDigest(link, []string{"10.0.0.1"})); !errors.Is(err, ErrListChanged) {
		t.Errorf("a list of another digest: %v", err)
	}
	if _, err := scanner.List(t.Context(), &offrampv1.ListDigest{}); err == nil {
		t.Error("a list without a name is not refused")
	}
}
