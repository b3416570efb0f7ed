package cleanup_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The digest is of what would be done: it does not move with time, guards, what is kept, or where other people's rules stand.
func TestDigestMovesWithWhatWouldBeDone(t *testing.T) {
	base := planOf(t, switched(t), iptables).GetDigest()
	same := map[string]func(*cleanup.Reading){
		"again":        func(*cleanup.Reading) {},
		"a guard":      func(r *cleanup.Reading) { withTwoSockets(r) },
		"a generation": func(r *cleanup.Reading) { r.Inventory.Generation = 77 },
		"kept":         func(r *cleanup.Reading) { addChain(r, "nat", inventory.Chain{Name: "KUBE-MARK-DROP"}) },
		"positions": func(r *cleanup.Reading) {
			input := chainOf(t, r, "filter", "INPUT")
			for i := range input.Rules {
				input.Rules[i].Position += 3
			}
		},
		"handles": func(r *cleanup.Reading) {
			input := chainOf(t, r, "filter", "INPUT")
			for i := range input.Rules {
				input.Rules[i].Handle += 3
			}
		},
	}
	for name, change := range same {
		reading := switched(t)
		change(reading)
		plan, err := cleanup.MakePlan(reading, cleanup.Options{Target: iptables}, time.Now())
		if err != nil || !bytes.Equal(plan.GetDigest(), base) {
			t.Errorf("%s: the digest moved (%v)", name, err)
		}
	}
	other := map[string]func(*cleanup.Reading){
		"boot":         func(r *cleanup.Reading) { r.Inventory.BootID = "other" },
		"mode":         func(r *cleanup.Reading) { proxyOf(r).RunningMode = nobody },
		"a set":        func(r *cleanup.Reading) { r.Inventory.Sets = r.Inventory.Sets[1:] },
		"an entry":     func(r *cleanup.Reading) { r.Inventory.Sets[0].Entries++ },
		"a server":     func(r *cleanup.Reading) { r.Inventory.Servers = r.Inventory.Servers[1:] },
		"real servers": func(r *cleanup.Reading) { r.Inventory.Servers[0].RealServers = nil },
		"a rule":       func(r *cleanup.Reading) { addRule(t, r, "filter", "KUBE-NODE-PORT", inventory.Rule{Target: "DROP"}) },
		"node":         func(r *cleanup.Reading) { r.Facts.Node = "other" },
	}
	for name, change := range other {
		reading := switched(t)
		change(reading)
		if bytes.Equal(planOf(t, reading, iptables).GetDigest(), base) {
			t.Errorf("%s: the digest did not move", name)
		}
	}
	if bytes.Equal(planOf(t, switched(t), none).GetDigest(), base) {
		t.Error("another target has the same digest")
	}
}

func TestDigestsByTheirBeginning(t *testing.T) {
	plan := &offrampv1.Plan{Digest: bytes.Repeat([]byte{0xab, 0xcd}, 16)}
	full := hex.EncodeToString(plan.GetDigest())
	for text, want := range map[string]bool{
		full: true, full[:12]: true, full[:13]: true, strings.ToUpper(full[:20]): true,
		full[:11]: false, "": false, "abcdabcdabce": false, full + "ab": false, "abcdabcdabcg": false, "/var/lib/off": false,
	} {
		if got := cleanup.MatchesDigest(plan, text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{full[:11], "xyzxyzxyzxyz", full + "ab", ""} {
		if cleanup.CheckDigest(text) == nil {
			t.Errorf("%q passes for a digest", text)
		}
	}
}

func FuzzMatchesDigest(f *testing.F) {
	f.Add("abcdabcdabcd")
	f.Add("ABCDABCDABCD0")
	f.Add("é")
	plan := &offrampv1.Plan{Digest: bytes.Repeat([]byte{0xab, 0xcd}, 16)}
	full := hex.EncodeToString(plan.GetDigest())
	f.Fuzz(func(t *testing.T, text string) {
		want := len(text) >= 12 && strings.HasPrefix(full, strings.ToLower(text))
		if got := cleanup.MatchesDigest(plan, text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	})
}
