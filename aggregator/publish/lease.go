package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// leaseName is the Lease's. It is there from the start, as it is in deploy/base: the right to create one cannot be given by name.
const leaseName = "offramp-aggregator"

// errNotHeld says that somebody else writes now.
var errNotHeld = errors.New("this replica does not hold the Lease")

// lease is this replica's part in the election.
type lease struct {
	config Config
	lock   *renewals

	mu sync.Mutex
	// term ends when the Lease is lost; nil while it is not held.
	term context.Context //nolint:containedctx // it is the life of a term, made by the elector
}

func newLease(config Config, complaints *complaints) *lease {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: config.Namespace, Name: leaseName},
		Client:     config.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: config.Identity},
	}
	return &lease{config: config, lock: &renewals{Interface: lock, now: config.Now, complaints: complaints}}
}

// contend stands for election again and again until ctx ends, and gives the Lease back then.
func (l *lease) contend(ctx context.Context) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l.lock, LeaseDuration: l.config.pace.lease, RenewDeadline: l.config.pace.renew, RetryPeriod: l.config.pace.retry,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: l.begin, OnStoppedLeading: l.end},
	})
	if err != nil {
		return fmt.Errorf("stand for the Lease %s: %w", leaseName, err)
	}
	// The elector logs each try; what is worth it is logged here and by the lock.
	ctx = klog.NewContext(ctx, logr.Discard())
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}

func (l *lease) begin(term context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = term
	if term.Err() == nil {
		l.config.Log.Info("this replica writes to Kubernetes from now on", "lease", leaseName)
	}
}

func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != nil {
		l.config.Log.Info("this replica no longer writes to Kubernetes", "lease", leaseName)
	}
	l.term = nil
}

// held returns the term that this replica may write in, nil for none. It does not wait for the elector to notice that it could not
// renew.
func (l *lease) held() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || l.term.Err() != nil || !l.lock.within(l.config.pace.renew) {
		return nil
	}
	return l.term
}

// do makes one call that only the holder of the Lease may make. It ends with the term.
func (l *lease) do(ctx context.Context, call func(context.Context) error) error {
	term := l.held()
	if term == nil {
		return errNotHeld
	}
	limited, cancel := context.WithTimeout(ctx, l.config.pace.call)
	defer cancel()
	defer context.AfterFunc(term, cancel)() //nolint:contextcheck // it is the end of the term that ends the call
	return call(limited)
}

// renewals is a lock that knows when it was last taken or renewed, and complains where that does not work.
type renewals struct {
	resourcelock.Interface
	now        func() time.Time
	complaints *complaints

	mu sync.Mutex
	at time.Time
}

// Get implements resourcelock.Interface.
func (r *renewals) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := r.Interface.Get(ctx)
	// One that is not there is made, or that does not work.
	if !apierrors.IsNotFound(err) {
		r.complain(ctx, "reading the Lease", err)
	}
	return record, raw, err //nolint:wrapcheck // the elector looks at it
}

// Create implements resourcelock.Interface.
func (r *renewals) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.write(ctx, record, r.Interface.Create)
}

// Update implements resourcelock.Interface.
func (r *renewals) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return r.write(ctx, record, r.Interface.Update)
}

func (r *renewals) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	mine, began := record.HolderIdentity == r.Identity(), r.now()
	if !mine {
		// It is given back: from here on somebody else may have it.
		r.set(time.Time{})
	}
	err := write(ctx, record)
	r.complain(ctx, "the Lease", err)
	if err == nil && mine {
		r.set(began)
	}
	return err //nolint:wrapcheck // the elector looks at it
}

// complain leaves out what another replica's being quicker, or the end of an election, brings about.
func (r *renewals) complain(ctx context.Context, what string, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		r.complaints.about(what, "", err)
	}
}

func (r *renewals) set(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = at
}

// within reports whether it was renewed less than this ago.
func (r *renewals) within(limit time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.at.IsZero() && r.now().Sub(r.at) < limit
}
