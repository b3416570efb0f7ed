package failover

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// replicasName is what agents are told.
const replicasName = "replicas.offramp.test"

// dns answers for replicasName as a headless Service does: with the addresses that are ready.
type dns struct {
	mu    sync.Mutex
	ready map[string]bool
	// broken has it say nothing at all.
	broken bool
}

// serveDNS answers at the test's own address, and makes that the one that every process of the test asks.
func serveDNS(t *testing.T) *dns {
	t.Helper()
	d := &dns{ready: map[string]bool{}}
	conn, err := net.ListenPacket("udp", here+":53")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { d.serve(conn) })
	t.Cleanup(func() { _ = conn.Close(); all.Wait() })
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+here+"\noptions timeout:1 attempts:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The mounts are the test's own.
	if err := unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *dns) serve(conn net.PacketConn) {
	packet := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if answer := d.answer(packet[:n]); answer != nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

func (d *dns) answer(packet []byte) []byte {
	var asked dnsmessage.Message
	if err := asked.Unpack(packet); err != nil || len(asked.Questions) != 1 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return nil
	}
	question := asked.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: asked.ID, Response: true, Authoritative: true}, Questions: asked.Questions}
	if question.Name.String() != replicasName+"." {
		reply.RCode = dnsmessage.RCodeNameError
	} else if question.Type == dnsmessage.TypeA {
		for address := range d.ready {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()},
			})
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func (d *dns) set(address string, ready bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ready {
		d.ready[address] = true
	} else {
		delete(d.ready, address)
	}
}

func (d *dns) breakDown(broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = broken
}
