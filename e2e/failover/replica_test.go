package failover

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	heartbeat = time.Second
	// silence is after how long a node that says nothing is silent.
	silence = 3 * heartbeat
)

// replica is an aggregator.
type replica struct {
	*stage

	name    string
	space   *space
	audit   string
	process *process
	client  offrampv1.FleetServiceClient
}

func (s *stage) addReplica(number int) *replica {
	s.Helper()
	r := &replica{stage: s, name: string(rune('A' + number))}
	r.space = addSpace(s.T, number, "10.99.0."+string(rune('2'+number)))
	r.audit = filepath.Join(s.TempDir(), "audit")
	conn, err := grpc.NewClient("passthrough:///"+r.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	r.client = offrampv1.NewFleetServiceClient(conn)
	r.start()
	return r
}

func (r *replica) address() string { return r.space.address + ":8443" }

func (r *replica) start() {
	r.Helper()
	r.process = start(r.T, r.space, "replica "+r.name, programs.Aggregator(), "run", "--listen", r.address(), "--insecure-plaintext",
		"--auth", "none", "--heartbeat-interval", heartbeat.String(), "--audit-log", r.audit, "--drain-timeout", "1s")
	until(r.T, 20*time.Second, r.name+" listens", func() bool { return strings.Contains(r.process.said(), "listening") })
	r.names.set(r.space.address, true)
}

// harms are what happens to a replica, for a while.
func (r *replica) harms() map[string]func(while time.Duration) {
	return map[string]func(time.Duration){
		"is killed": func(while time.Duration) {
			r.process.kill()
			r.names.set(r.space.address, false)
			r.pause(while)
			r.start()
		},
		// Readiness probes take their time: DNS goes on naming it.
		"is killed and starts again at once": func(time.Duration) {
			r.process.kill()
			r.start()
		},
		"is stopped in good order": func(while time.Duration) {
			r.names.set(r.space.address, false)
			r.process.signal(syscall.SIGTERM)
			<-r.process.ended
			r.pause(while)
			r.start()
		},
		"hangs": func(while time.Duration) {
			r.process.signal(syscall.SIGSTOP)
			r.pause(while)
			r.process.signal(syscall.SIGCONT)
		},
		"is cut off": func(while time.Duration) {
			r.space.cut(r.T)
			r.pause(while)
			r.space.mend(r.T)
		},
		"starts again while it is cut off": func(while time.Duration) {
			r.space.cut(r.T)
			r.process.kill()
			r.start()
			r.pause(while)
			r.space.mend(r.T)
		},
		"stays, and three nodes are cut off": func(while time.Duration) {
			var gone []*node
			for _, i := range rand.Perm(len(r.reporting))[:3] {
				gone = append(gone, r.reporting[i])
				r.reporting[i].space.cut(r.T)
			}
			r.pause(while + silence)
			for _, n := range gone {
				n.space.mend(r.T)
			}
		},
		"is not found, for DNS says nothing": func(while time.Duration) {
			r.names.breakDown(true)
			r.process.kill()
			r.start()
			r.pause(while)
			r.names.breakDown(false)
		},
	}
}
