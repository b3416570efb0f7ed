package collect

import (
	"net/netip"
	"sync"
)

// exclusions remembers ipvs.excludeCIDRs as they were last seen. Whoever leaves ipvs mode takes them out of the
// configuration, while the virtual servers in them, which are somebody else's, stay. Safe for use by several goroutines.
type exclusions struct {
	mu    sync.Mutex
	cidrs []string
}

// see notes what a configuration says. One that says nothing changes nothing, and what is no prefix is left out: kube-proxy
// refuses to start with it.
func (e *exclusions) see(texts []string) {
	var cidrs []string
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, prefix.Masked().String())
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(cidrs) > 0 {
		e.cidrs = cidrs
	}
}

// recall takes over what was seen earlier, where nothing was seen since.
func (e *exclusions) recall(texts []string) {
	e.mu.Lock()
	known := len(e.cidrs) > 0
	e.mu.Unlock()
	if !known {
		e.see(texts)
	}
}

// excludeCIDRs returns ipvs.excludeCIDRs as last seen by this Scanner or, before that, by another: virtual servers in them are foreign. Not to be
// changed by the caller.
func (s *Scanner) excludeCIDRs() []string {
	s.exclude.mu.Lock()
	defer s.exclude.mu.Unlock()
	return s.exclude.cidrs
}
