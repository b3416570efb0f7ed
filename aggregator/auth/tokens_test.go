package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func withToken(ctx context.Context, token string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
}

func TestAgentTokens(t *testing.T) {
	cluster := newAPIServer(t)
	tokens := cluster.newTokens(nil)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		want token
		code codes.Code
		says string
	}{
		"good":                            {token{}, codes.OK, ""},
		"good, another node":              {token{node: "node-b"}, codes.OK, ""},
		"our clock is a little behind":    {token{delay: 5 * time.Second}, codes.OK, ""},
		"our clock is a little ahead":     {token{life: -5 * time.Second}, codes.OK, ""},
		"expired":                         {token{life: -time.Minute}, codes.Unauthenticated, "expired"},
		"not valid yet":                   {token{delay: time.Minute}, codes.Unauthenticated, "not valid yet"},
		"never expires":                   {token{forever: true}, codes.Unauthenticated, "never expires"},
		"for the API server":              {token{audience: issuer}, codes.Unauthenticated, "audience"},
		"for an audience that looks like": {token{audience: "offramp2"}, codes.Unauthenticated, "audience"},
		"from another cluster":            {token{issuer: "https://elsewhere"}, codes.Unauthenticated, "https://elsewhere"},
		"signed by a stranger":            {token{signer: stranger}, codes.Unauthenticated, "signature"},
		"signed with an unknown key":      {token{signer: stranger, key: "two"}, codes.Unauthenticated, "does not publish"},
		"signed with a shared secret":     {token{signer: []byte("0123456789abcdef0123456789abcdef"), algorithm: jose.HS256}, codes.Unauthenticated, "no signed token"},
		"subject of another account":      {token{subject: "system:serviceaccount:offramp:other"}, codes.Unauthenticated, "subject"},
		"another namespace":               {token{namespace: "other"}, codes.PermissionDenied, "namespace"},
		"bound to no pod":                 {token{noPod: true}, codes.PermissionDenied, "no pod"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			caller, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(tt.want)))
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.says) {
				t.Fatalf("got %v, want %v with %q", err, tt.code, tt.says)
			}
			if err != nil {
				return
			}
			want := Caller{Kind: Agent, Name: "system:serviceaccount:offramp:offramp-agent", TokenID: "id-1", Node: or(tt.want.node, "node-a")}
			if caller.Kind != want.Kind || caller.Name != want.Name || caller.TokenID != want.TokenID || caller.Node != want.Node || caller.Until.IsZero() {
				t.Errorf("got %+v", caller)
			}
		})
	}
	if cluster.asked("review") != 0 {
		t.Error("an agent waited for a TokenReview")
	}
}

func TestNoToken(t *testing.T) {
	tokens := newAPIServer(t).newTokens(nil)
	for name, pairs := range map[string][]string{
		"none": nil, "another scheme": {"authorization", "Basic eDp5"}, "no token": {"authorization", "Bearer "},
		"two": {"authorization", "Bearer a", "authorization", "Bearer b"}, "no scheme": {"authorization", "eyJ"},
		"junk": {"authorization", "Bearer a.b.c"}, "half": {"authorization", "Bearer e30.e30."},
		"unsigned": {"authorization", "Bearer eyJhbGciOiJub25lIn0.e30."},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
		if _, err := tokens.Authenticate(ctx); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Before the keys were ever read, every token is refused.
func TestNoKeysYet(t *testing.T) {
	cluster := newAPIServer(t)
	tokens := NewTokens(TokensConfig{API: cluster, Audience: audience, Namespace: namespace, AgentAccount: "offramp-agent", Log: quiet()})
	cluster.set(func() { cluster.down = errors.New("down") })
	if err := tokens.Prepare(t.Context()); err == nil {
		t.Error("prepared without keys")
	}
	if _, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{}))); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
}

// A new key is found at once; made-up ones cost the API server one look in ten seconds.
func TestUnknownKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		cluster.addKey("two")
		if _, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{key: "two"}))); err != nil {
			t.Errorf("a token with the new key: %v", err)
		}
		cluster.set(func() { cluster.keys["made up"] = cluster.keys["one"] })
		for range 30 {
			for range 100 {
				if _, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{key: "made up"}))); status.Code(err) != codes.Unauthenticated {
					t.Fatalf("a made-up key: %v", err)
				}
			}
			time.Sleep(time.Second)
		}
		if got := cluster.asked("keys"); got < 3 || got > 6 {
			t.Errorf("the keys were read %d times in 30 s", got)
		}
	})
}

// A key that the cluster withdraws is not trusted for longer than it takes to look again.
func TestWithdrawnKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { tokens.Run(ctx); close(ended) }()
		cluster.addKey("two")
		cluster.set(func() { cluster.published = []string{"two"} })
		time.Sleep(keysEvery + time.Second)
		if _, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{}))); status.Code(err) != codes.Unauthenticated {
			t.Errorf("got %v", err)
		}
		// Keys that cannot be read leave those that are known.
		cluster.set(func() { cluster.down = errors.New("down") })
		time.Sleep(2 * keysEvery)
		if _, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{key: "two"}))); err != nil {
			t.Errorf("got %v", err)
		}
		cancel()
		<-ended
	})
}

// Before Kubernetes 1.30 tokens do not name the node; the pod is looked up, once.
func TestNodeOfPod(t *testing.T) {
	cluster := newAPIServer(t)
	tokens := cluster.newTokens(nil)
	cluster.podNodes["uid-of-pod-a"] = "node-z"
	for range 3 {
		caller, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{noNode: true})))
		if err != nil || caller.Node != "node-z" {
			t.Fatalf("got %+v, %v", caller, err)
		}
	}
	if got := cluster.asked("pod"); got != 1 {
		t.Errorf("the pod was looked up %d times", got)
	}
	if _, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{noNode: true, pod: "gone"}))); status.Code(err) != codes.Unavailable {
		t.Errorf("a pod that cannot be found: %v", err)
	}
}

func TestPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		ctx := withToken(t.Context(), cluster.mint(token{account: "offramp-operator", id: "jti-7"}))
		apply := Action{"apply", "nodecleanups", "node-a"}
		try := func() error {
			caller, err := tokens.Authenticate(ctx)
			if err != nil {
				return err
			}
			if caller.Kind != Person || caller.Name != operator || caller.TokenID != "jti-7" || caller.Node != "" {
				t.Errorf("got %+v", caller)
			}
			return caller.permit(ctx, apply)
		}
		for range 50 {
			if err := try(); err != nil {
				t.Fatal(err)
			}
		}
		if r, a := cluster.asked("review"), cluster.asked("access"); r != 1 || a != 1 {
			t.Errorf("50 calls at once cost %d reviews of the token and %d of access", r, a)
		}
		// The role is taken away: no later than the answer is kept for.
		cluster.set(func() { cluster.revoked["access of "+operator] = true })
		time.Sleep(accessKept + time.Second)
		if err := try(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "apply nodecleanups.offramp.dev node-a") {
			t.Errorf("without the role: %v", err)
		}
		cluster.set(func() { cluster.revoked[operator] = true })
		time.Sleep(accessKept + time.Second)
		if err := try(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("without the account: %v", err)
		}
	})
}

// What was answered about one node, one verb or one account says nothing about another, however fresh it is.
func TestAnswersAreNotMixedUp(t *testing.T) {
	cluster := newAPIServer(t)
	tokens := cluster.newTokens(nil)
	may := func(account string, what Action) codes.Code {
		caller, err := tokens.Authenticate(withToken(t.Context(), cluster.mint(token{account: account, id: account})))
		if err != nil {
			t.Fatal(err)
		}
		return status.Code(caller.permit(t.Context(), what))
	}
	for range 2 {
		for _, tt := range []struct {
			account string
			what    Action
			want    codes.Code
		}{
			{"offramp-operator-a", Action{"apply", "nodecleanups", "node-a"}, codes.OK},
			{"offramp-operator-a", Action{"apply", "nodecleanups", "node-b"}, codes.PermissionDenied},
			{"offramp-operator-a", Action{"accept", "findings", ""}, codes.PermissionDenied},
			{"offramp-operator", Action{"apply", "nodecleanups", "node-b"}, codes.OK},
			{"offramp-viewer", Action{"get", "nodes", "node-a"}, codes.OK},
			{"offramp-viewer", Action{"apply", "nodecleanups", "node-a"}, codes.PermissionDenied},
		} {
			if got := may(tt.account, tt.what); got != tt.want {
				t.Errorf("%s %s: %v, want %v", tt.account, tt.what, got, tt.want)
			}
		}
	}
	if got := cluster.asked("access"); got != 6 {
		t.Errorf("the API server was asked %d times about 6 things", got)
	}
}

// Nothing is allowed because the API server does not answer, and nobody waits for it for ever.
func TestPeopleWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		ctx := withToken(t.Context(), cluster.mint(token{account: "offramp-operator"}))
		caller, err := tokens.Authenticate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cluster.set(func() { cluster.down = errors.New("it is down") })
		if err := caller.permit(ctx, Action{"apply", "nodecleanups", "node-a"}); status.Code(err) != codes.Unavailable {
			t.Errorf("access: %v", err)
		}
		time.Sleep(accessKept + time.Second)
		if _, err := tokens.Authenticate(ctx); status.Code(err) != codes.Unavailable {
			t.Errorf("token: %v", err)
		}
		hang := make(chan struct{})
		cluster.set(func() { cluster.hang = hang })
		began := time.Now()
		if _, err := tokens.Authenticate(ctx); status.Code(err) != codes.Unavailable || time.Since(began) > askLimit {
			t.Errorf("a hanging API server: %v after %s", err, time.Since(began))
		}
		close(hang)
	})
}

func TestClaimed(t *testing.T) {
	for sent, want := range map[string]string{
		"ada@example.com": "ada@example.com", "Ada Lovelace": "Ada Lovelace", "Zoë": "Zoë", "": "",
		"a\nlevel=INFO msg=forged": "alevel=INFO msg=forged", "\x1b[31mred": "[31mred", "\xff": "",
		strings.Repeat("é", 200): strings.Repeat("é", 126),
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(ClaimedKey, sent))
		if got := claimed(ctx); got != want {
			t.Errorf("%q became %q", sent, got)
		}
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(ClaimedKey, "a", ClaimedKey, "b"))
	if got := claimed(ctx); got != "" {
		t.Errorf("two names became %q", got)
	}
}

// FuzzVerify: whatever comes as a token, it is refused or was signed by the cluster.
func FuzzVerify(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6Im9uZSJ9.e30.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		ring := &keyring{issuers: []string{""}}
		if told, err := ring.verify(text, "", time.Now()); err == nil {
			t.Errorf("%q was taken: %+v", text, told)
		}
	})
}

// A good token beside another one is no token: which of the two counts must not be a matter of order.
func TestTwoTokens(t *testing.T) {
	cluster := newAPIServer(t)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+cluster.mint(token{}), "authorization", "Bearer x"))
	if caller, err := cluster.newTokens(nil).Authenticate(ctx); status.Code(err) != codes.Unauthenticated {
		t.Errorf("got %+v, %v", caller, err)
	}
}
