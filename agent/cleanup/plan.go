package cleanup

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

var (
	// ErrTarget says that nothing is known of the target that was asked for.
	ErrTarget = errors.New("no such target")
	// ErrSysctlsUnderIPVS says that the sysctls of ipvs mode are not reset where ipvs mode is the target.
	ErrSysctlsUnderIPVS = errors.New("the sysctls of ipvs mode are not reset where ipvs mode is the target")
)

// MakePlan says what a clean-up would do on the node that was read, in its order, what it would keep, and what stands in
// the way. It is pure: the same reading, options and time give the same plan, and the digest does not depend on the time.
//
// An error is ErrTarget or ErrSysctlsUnderIPVS, for options that make no sense.
func MakePlan(reading *Reading, options Options, now time.Time) (*offrampv1.Plan, error) {
	mode, known := targetMode(options.Target)
	if !known {
		return nil, ErrTarget
	}
	if options.ResetSysctls && options.Target == offrampv1.Target_TARGET_IPVS {
		return nil, ErrSysctlsUnderIPVS
	}
	s := newScope(reading, options, mode)
	plan := &offrampv1.Plan{
		Node:        reading.Facts.GetNode(),
		Target:      options.Target,
		BootId:      reading.Inventory.BootID,
		RunningMode: s.assessment.GetRunningMode(),
		Operations:  s.operations(),
		Kept:        s.kept(),
		MadeAt:      timestamppb.New(now),
	}
	plan.Guards = override(s.guards(len(plan.GetOperations()) > 0), options.Overrides)
	plan.Digest = Digest(plan)
	return plan, nil
}

// targetMode is the mode that a target stands for.
func targetMode(target offrampv1.Target) (offrampv1.ProxyMode, bool) {
	switch target {
	case offrampv1.Target_TARGET_NFTABLES:
		return offrampv1.ProxyMode_PROXY_MODE_NFTABLES, true
	case offrampv1.Target_TARGET_IPTABLES:
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES, true
	case offrampv1.Target_TARGET_IPVS:
		return offrampv1.ProxyMode_PROXY_MODE_IPVS, true
	case offrampv1.Target_TARGET_NONE:
		return offrampv1.ProxyMode_PROXY_MODE_NONE, true
	default:
		return offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, false
	}
}

// operations puts the stages together, in the order of the enum.
func (s *scope) operations() []*offrampv1.Operation {
	var list operationList
	s.planSources(&list)
	s.planServers(&list)
	s.planLink(&list)
	s.planRules(&list)
	s.planTables(&list)
	s.planSets(&list)
	s.planRest(&list)
	if s.options.ResetSysctls {
		s.planSysctls(&list)
	}
	return list.operations
}

// operationList numbers operations by transaction.
type operationList struct {
	operations  []*offrampv1.Operation
	transaction uint32
}

// begin starts the next transaction.
func (l *operationList) begin() { l.transaction++ }

// add adds to the transaction that was begun last.
func (l *operationList) add(operation *offrampv1.Operation) {
	operation.Transaction = l.transaction
	l.operations = append(l.operations, operation)
}

// addAlone adds an operation that is a transaction by itself.
func (l *operationList) addAlone(operation *offrampv1.Operation) {
	l.begin()
	l.add(operation)
}

func assess(reading *Reading, target offrampv1.Target) *offrampv1.Assessment {
	return readiness.Assess(reading.Facts, target)
}
