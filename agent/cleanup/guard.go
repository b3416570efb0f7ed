package cleanup

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// Guard is one thing that can stand in a clean-up's way.
type Guard struct {
	// ID is stable, such as "mode-is-not-target".
	ID string
	// Title is one line for people.
	Title string
	// Remedy is what to do.
	Remedy string
	// Overridable: a person on the node may override it by name, with a recorded reason.
	Overridable bool
}

// IDs of the guards. Those of the second group are raised by the half that does.
const (
	GuardModeUnknown         = "mode-unknown"
	GuardModeIsNotTarget     = "mode-is-not-target"
	GuardNotInSync           = "not-in-sync"
	GuardSyncUnknown         = "sync-unknown"
	GuardNeverSynced         = "target-never-synced"
	GuardSharedMatchesSets   = "shared-chain-matches-sets"
	GuardSharedJumpsAway     = "shared-chain-jumps-to-iptables-mode"
	GuardMixedBackends       = "mixed-backends"
	GuardForeignJump         = "foreign-jump"
	GuardForeignRuleInside   = "foreign-rule-inside"
	GuardForeignSetMatch     = "foreign-set-match"
	GuardForeignMark         = "foreign-mark"
	GuardCNIConfiguration    = "cni-configuration"
	GuardBootFile            = "boot-file"
	GuardHostUnread          = "host-unread"
	GuardConnections         = "connections-through-ipvs"
	GuardSockets             = "sockets-with-vip"
	GuardAcceptUnderDrop     = "accept-under-drop"
	GuardAPIServer           = "api-server-through-ipvs"
	GuardKeptServerNeedsLink = "kept-server-needs-link"
	GuardUnattributed        = "unattributed-server"
	GuardSectionUnread       = "section-unread"
	GuardTableOwned          = "table-owned-by-process"

	GuardLockHeld         = "lock-held"
	GuardCleanupRunning   = "clean-up-running"
	GuardNoRoom           = "no-room"
	GuardNoDurableStorage = "no-durable-storage"
	GuardPlanChanged      = "plan-changed"
	GuardNotDrained       = "not-drained"
)

// maxEvidence bounds GuardFinding.evidence, as cleanup.proto says.
const maxEvidence = 20

// Finding is the guard with this id as it is told to people, with its evidence. It panics for an id that is in no list:
// guards are data, and a guard without words must not get as far as a node.
func Finding(id string, evidence ...string) *offrampv1.GuardFinding {
	for _, guard := range Guards() {
		if guard.ID == id {
			return &offrampv1.GuardFinding{
				Id: guard.ID, Title: guard.Title, Remedy: guard.Remedy, CanBeOverridden: guard.Overridable,
				Evidence: evidence[:min(len(evidence), maxEvidence)],
			}
		}
	}
	panic("no guard is called " + id)
}
