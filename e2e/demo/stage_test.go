package main

import (
	"regexp"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab"
)

func TestChoose(t *testing.T) {
	t.Setenv(lab.CacheVariable, t.TempDir())
	for name, standIn := range map[string]bool{"the cache is empty": false, "asked for": true} {
		s := &stage{began: time.Now()}
		if err := s.choose(t.Context(), standIn); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.origin.(restored); !ok {
			t.Errorf("%s: the nodes come from %T, want restored captures", name, s.origin)
		}
	}
}

// What is expected of the real kube-proxy for the demo's Services, held against a node that had these and others.
func TestLeftoversOfTheDemosServices(t *testing.T) {
	own := `(10\.96\.0\.|fd00:10:96::)(1|10|13|14|16|17|20|31|40)|203\.0\.113\.31|2001:db8::31|192\.0\.2\.40|2001:db8::40`
	for what, c := range map[string]struct {
		file, pattern string
		want          int
	}{
		"virtual servers": {"ipvsadm-save.txt", `(?m)^-A -[tu] \[?(` + own + `)\]?:\d+ |^-A -[tu] \S+:(30080|30101) `, real{}.left().servers},
		"addresses":       {"ip-addr.txt", `inet6? (` + own + `)/(32|128) `, real{}.left().addresses},
	} {
		content, err := captures.Read("1.37.2-nft-ipvs-then-iptables", c.file)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(regexp.MustCompile(c.pattern).FindAll(content, -1)); got != c.want {
			t.Errorf("%s of the demo's Services: %d, want %d", what, got, c.want)
		}
	}
}
