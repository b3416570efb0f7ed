package cleanup_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// restore brings back the newest backup; mode stands in for what the node would say.
func (n *node) restore(mode offrampv1.ProxyMode, boot string) (*cleanup.RestoreResult, error) {
	return cleanup.NewExecutor(n.config).Restore(n.t.Context(), cleanup.RestoreRequest{
		Look: func(ctx context.Context) (*offrampv1.Plan, *cleanup.Reading, error) {
			plan, reading, err := n.planner().Plan(ctx)
			if err == nil {
				plan.RunningMode = mode
			}
			if err == nil && boot != "" {
				reading.Inventory.BootID = boot
			}
			return plan, reading, err
		},
	})
}

const noProxy = offrampv1.ProxyMode_PROXY_MODE_NONE

// Clean-up and restore undo each other: the native tools print the same as before, order of rules included.
func TestRestoreUndoesApply(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	for _, capture := range captures.Names() {
		t.Run(capture, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			zoo(t)
			kubeProxy(t, capture)
			before := look(t)
			n := newNode(t)
			mustClean(t, n.apply())
			result, err := n.restore(noProxy, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range result.Items {
				if item.Outcome != cleanup.Restored {
					t.Errorf("%s: %s: %s", item.What, item.Outcome, item.Why)
				}
			}
			if diff := cmp.Diff(before, look(t)); diff != "" {
				t.Errorf("before the clean-up (-), after the restore (+):\n%s", diff)
			}
			again, err := n.restore(noProxy, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range again.Items {
				if item.Outcome != cleanup.Kept {
					t.Errorf("again: %s: %s: %s", item.What, item.Outcome, item.Why)
				}
			}
			if diff := cmp.Diff(before, look(t)); diff != "" {
				t.Errorf("before the clean-up (-), after two restores (+):\n%s", diff)
			}
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	zoo(t)
	kubeProxy(t, "ipvs-then-nftables")
	n := newNode(t)
	if _, err := n.restore(noProxy, ""); !errors.Is(err, cleanup.ErrBackup) {
		t.Errorf("without a backup: %v, want %v", err, cleanup.ErrBackup)
	}
	mustClean(t, n.apply())
	clean := look(t)
	if _, err := n.restore(noProxy, "another boot"); !errors.Is(err, cleanup.ErrRebooted) {
		t.Errorf("after a reboot: %v, want %v", err, cleanup.ErrRebooted)
	}
	if _, err := n.restore(offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, ""); !errors.Is(err, cleanup.ErrModeUnknown) {
		t.Errorf("under an unknown mode: %v, want %v", err, cleanup.ErrModeUnknown)
	}
	if diff := cmp.Diff(clean, look(t)); diff != "" {
		t.Errorf("a refused restore changed something:\n%s", diff)
	}
}
