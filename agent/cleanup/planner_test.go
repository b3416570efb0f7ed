package cleanup_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// planning is a planner for a node whose nth reading, from 1, is what read makes of it, and how often it was read.
func planning(t *testing.T, read func(n int, reading *cleanup.Reading) error) (*cleanup.Planner, *int) {
	t.Helper()
	readings := 0
	return &cleanup.Planner{
		Read: func(context.Context) (*cleanup.Reading, error) {
			readings++
			reading := captured(t, "ipvs-then-iptables", offrampv1.ProxyMode_PROXY_MODE_IPTABLES)
			return reading, read(readings, reading)
		},
		Options: cleanup.Options{Target: iptables},
		Now:     time.Now,
	}, &readings
}

const nftIPv4 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4

// A node that changed in the middle of every reading is read again, and the plan is that of the reading that held still.
func TestWhatKeptChangingIsReadAgain(t *testing.T) {
	still, _ := planning(t, func(int, *cleanup.Reading) error { return nil })
	want, _, err := still.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*cleanup.Reading){
		"the facts": func(reading *cleanup.Reading) {
			stable := facts.Find(reading.Facts, nftIPv4).GetStable()
			stable.State, stable.Content = offrampv1.SectionState_SECTION_STATE_INCONSISTENT, nil
		},
		"the inventory": func(reading *cleanup.Reading) {
			reading.Inventory.Rulesets = nil
			reading.Inventory.Problems = map[offrampv1.SectionKind]string{nftIPv4: "it kept changing while it was read"}
			reading.Inventory.KeptChanging = []offrampv1.SectionKind{nftIPv4}
		},
	} {
		t.Run(name, func(t *testing.T) {
			planner, readings := planning(t, func(n int, reading *cleanup.Reading) error {
				if n < 4 {
					change(reading)
				}
				return nil
			})
			plan, _, err := planner.Plan(t.Context())
			if err != nil || *readings != 4 {
				t.Fatalf("%d readings, want 4; error %v", *readings, err)
			}
			if !bytes.Equal(plan.GetDigest(), want.GetDigest()) || len(plan.GetGuards()) != len(want.GetGuards()) {
				t.Errorf("digest %x and guards %v, want %x and %v", plan.GetDigest(), plan.GetGuards(), want.GetDigest(), want.GetGuards())
			}
		})
	}
}

// That has an end, and the plan then says what could not be read.
func TestWhatNeverHoldsStillIsSaid(t *testing.T) {
	planner, readings := planning(t, func(_ int, reading *cleanup.Reading) error {
		reading.Inventory.Problems = map[offrampv1.SectionKind]string{nftIPv4: "it kept changing while it was read"}
		reading.Inventory.KeptChanging = []offrampv1.SectionKind{nftIPv4}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	plan, _, err := planner.Plan(ctx)
	if err != nil || *readings < 2 {
		t.Fatalf("%d readings, want several; error %v", *readings, err)
	}
	if blocking := cleanup.Blocking(plan); len(blocking) != 1 || blocking[0].GetId() != cleanup.GuardSectionUnread {
		t.Errorf("guards %v, want %s", blocking, cleanup.GuardSectionUnread)
	}
}

// What cannot be read at all will not be by trying again.
func TestWhatIsUnreadableIsReadOnce(t *testing.T) {
	broken := errors.New("broken")
	for name, read := range map[string]func(int, *cleanup.Reading) error{
		"a part": func(_ int, reading *cleanup.Reading) error {
			reading.Inventory.Problems = map[offrampv1.SectionKind]string{nftIPv4: "operation not permitted"}
			facts.Find(reading.Facts, nftIPv4).GetStable().State = offrampv1.SectionState_SECTION_STATE_UNREADABLE
			return nil
		},
		"all": func(int, *cleanup.Reading) error { return broken },
	} {
		planner, readings := planning(t, read)
		if _, _, err := planner.Plan(t.Context()); (name == "all") != errors.Is(err, broken) {
			t.Errorf("%s: error %v", name, err)
		}
		if *readings != 1 {
			t.Errorf("%s: %d readings, want 1", name, *readings)
		}
	}
}
