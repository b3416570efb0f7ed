package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"
)

// shelf is a store in memory, with versions as the API server has them.
type shelf struct {
	mu        sync.Mutex
	data      map[string][]byte
	version   int
	published []byte
	saves     int
	fail      error
	before    func() // before each save
}

func (s *shelf) Load(context.Context) (map[string][]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == 0 {
		return nil, "", s.fail
	}
	return maps.Clone(s.data), fmt.Sprint(s.version), s.fail
}

func (s *shelf) Save(_ context.Context, data map[string][]byte, version string) error {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == "" && s.version != 0 || version != "" && version != fmt.Sprint(s.version) {
		return ErrConflict
	}
	s.data, s.version, s.saves = data, s.version+1, s.saves+1
	return s.fail
}

func (s *shelf) Publish(_ context.Context, bundle []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = bundle
	return s.fail
}

// clock is a test's.
type clock struct{ now time.Time }

func newReplica(store Store, c *clock) *Authority {
	return New(Config{Store: store, Names: []string{"offramp-aggregator.offramp.svc", "127.0.0.1"}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return c.now }})
}

func refresh(t *testing.T, a *Authority) {
	t.Helper()
	if err := a.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// trusts says whether somebody who was given a bundle takes the server's certificate.
func trusts(t *testing.T, a *Authority, bundle []byte, at time.Time) error {
	t.Helper()
	server, err := a.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle is empty")
	}
	for _, name := range []string{"offramp-aggregator.offramp.svc", "127.0.0.1"} {
		if err := server.Leaf.VerifyHostname(name); err != nil {
			return err
		}
	}
	_, err = server.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func TestTheFirstAuthority(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	a := newReplica(store, c)
	if _, err := a.Certificate(); err == nil {
		t.Error("a certificate from nowhere")
	}
	refresh(t, a)
	if err := trusts(t, a, store.published, c.now); err != nil {
		t.Error(err)
	}
	before, _ := a.Certificate()
	refresh(t, a)
	if after, _ := a.Certificate(); after != before || store.saves != 1 {
		t.Errorf("a second look changed something: %d saves", store.saves)
	}
	authority, server := a.Expiry()
	if authority.Sub(c.now).Round(time.Hour) != life || server.Sub(c.now).Round(time.Hour) != serverLife {
		t.Errorf("they expire at %s and %s", authority, server)
	}
}

// Two years, in steps of six hours, with a client that learns of a new bundle one step later: at no moment is the server's
// certificate one that the client does not trust, and no certificate ever expires.
func TestTwoYearsWithoutAGap(t *testing.T) {
	store, c := &shelf{}, &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	one, two := newReplica(store, c), newReplica(store, c)
	var seen [][]byte
	authorities := map[string]bool{}
	for range 2 * 365 * 4 {
		refresh(t, one)
		refresh(t, two)
		seen = append(seen, store.published)
		old := seen[max(0, len(seen)-2)]
		for _, replica := range []*Authority{one, two} {
			if err := trusts(t, replica, old, c.now); err != nil {
				t.Fatalf("at %s: %v", c.now, err)
			}
		}
		authorities[string(one.signer.Raw)] = true
		c.now = c.now.Add(6 * time.Hour)
	}
	if len(authorities) != 3 {
		t.Errorf("%d authorities signed in two years, want one every 8 months", len(authorities))
	}
	if certificates, err := decodeCertificates(store.published); err != nil || len(certificates) > 3 {
		t.Errorf("%d certificates are published (%v)", len(certificates), err)
	}
}

// Replicas that start together end with the same authority.
func TestReplicasAgree(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	replicas := make([]*Authority, 4)
	var all sync.WaitGroup
	for i := range replicas {
		replicas[i] = newReplica(store, c)
		all.Go(func() {
			if err := replicas[i].Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if store.saves != 1 {
		t.Errorf("%d authorities were saved", store.saves)
	}
	for i, replica := range replicas {
		if err := trusts(t, replica, store.published, c.now); err != nil {
			t.Errorf("replica %d: %v", i, err)
		}
	}
}

// Somebody who is always faster: an error, not a loop.
func TestConflictsWithoutEnd(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	store.before = func() {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.version, store.data = store.version+1, map[string][]byte{}
	}
	if err := newReplica(store, c).Refresh(t.Context()); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v", err)
	}
}

// After more than a year without any replica, the expired authority is replaced at once.
func TestAfterAYearOfRest(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	refresh(t, newReplica(store, c))
	c.now = c.now.Add(life + time.Hour)
	a := newReplica(store, c)
	refresh(t, a)
	if err := trusts(t, a, store.published, c.now); err != nil {
		t.Error(err)
	}
}

// What is stored and cannot be read is nobody's to overwrite, and what there is goes on serving.
func TestDamagedStore(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	a := newReplica(store, c)
	refresh(t, a)
	good := maps.Clone(store.data)
	other, err := newPair(c.now)
	if err != nil {
		t.Fatal(err)
	}
	another := map[string][]byte{}
	if err := other.encode(another, currentCert, currentKey); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string][]byte){
		"no key":               func(d map[string][]byte) { delete(d, currentKey) },
		"no certificate":       func(d map[string][]byte) { delete(d, currentCert) },
		"junk for a key":       func(d map[string][]byte) { d[currentKey] = []byte("junk") },
		"another one's key":    func(d map[string][]byte) { d[currentKey] = another[currentKey] },
		"two certificates":     func(d map[string][]byte) { d[currentCert] = append(d[currentCert], another[currentCert]...) },
		"next without its key": func(d map[string][]byte) { d[nextCert] = another[currentCert] },
	} {
		store.data = maps.Clone(good)
		change(store.data)
		saves := store.saves
		if err := a.Refresh(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if store.saves != saves {
			t.Errorf("%s: it was overwritten", name)
		}
		if _, err := a.Certificate(); err != nil {
			t.Errorf("%s: the certificate before is gone: %v", name, err)
		}
	}
	store.data = good
	refresh(t, a)
	store.fail = errors.New("the API server is down")
	if err := a.Refresh(t.Context()); err == nil {
		t.Error("no error from a store that fails")
	}
}

// A renewed certificate counts from the next handshake on, without another configuration.
func TestAHandshakeTakesTheNewestCertificate(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	a := newReplica(store, c)
	refresh(t, a)
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Certificate() }}
	first, _ := config.GetCertificate(nil)
	c.now = c.now.Add(serverLife - time.Hour)
	refresh(t, a)
	second, _ := config.GetCertificate(nil)
	if first == second || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Error("the certificate was not renewed")
	}
}

func FuzzDecode(f *testing.F) {
	pair, err := newPair(time.Now())
	if err != nil {
		f.Fatal(err)
	}
	data, err := (&material{current: pair, next: pair}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[currentCert], data[currentKey], data[nextCert], data[nextKey])
	f.Add([]byte{}, []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, cert, key, next, nextk []byte) {
		m, err := decode(map[string][]byte{currentCert: cert, currentKey: key, nextCert: next, nextKey: nextk})
		if err == nil && m != nil && (m.current == nil || m.current.key == nil) {
			t.Error("an authority without a key")
		}
	})
}

// A replica that has not looked yet still shows a certificate of the authority before: the newest bundle trusts it too.
func TestTheFormerAuthorityIsStillTrusted(t *testing.T) {
	store, c := &shelf{}, &clock{time.Now()}
	one, late := newReplica(store, c), newReplica(store, c)
	c.now = c.now.Add(-serverLife / 2) // so that the late one's certificate lives beyond the switch
	refresh(t, one)
	c.now = c.now.Add(life - life/3 + time.Hour)
	refresh(t, one)
	refresh(t, late)
	c.now = c.now.Add(overlap + time.Hour)
	refresh(t, one)
	if err := trusts(t, one, store.published, c.now); err != nil {
		t.Error(err)
	}
	if err := trusts(t, late, store.published, c.now); err != nil || string(late.signer.Raw) == string(one.signer.Raw) {
		t.Errorf("the late replica: %v", err)
	}
}
