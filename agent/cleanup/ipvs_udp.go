package cleanup

import "time"

// udpWindow is how far apart two looks at a flow of UDP have to be to tell whether it still has packets: the kernel prints
// whole seconds.
const udpWindow = 3 * time.Second

// udpFlows tells flows of UDP that still have packets from those that had their last one.
//
// UDP has no state that tells an end: IPVS keeps a flow until it had no packet for 300 s, so that on a node with DNS there are
// always some. But each packet sets that time anew (ip_vs_conn_put, net/netfilter/ipvs/ip_vs_conn.c): a flow whose time ran
// down as the clock did had none. A question of DNS and its answer are over before the first look; a stream of QUIC, media or
// a tunnel is not, and is waited for.
type udpFlows struct {
	before, now map[string]udpFlow
	at          time.Time
}

// udpFlow is a flow at the look by which it was judged last.
type udpFlow struct {
	at      time.Time
	expires time.Duration
	live    bool
}

// look begins the next look at all flows.
func (u *udpFlows) look(at time.Time) {
	u.before, u.now, u.at = u.now, map[string]udpFlow{}, at
}

// live reports whether a flow has packets. Of those that were there at the first look it is true until that can be told; one
// that came later is live once it had packets through a whole window.
func (u *udpFlows) live(key string, expires time.Duration) bool {
	flow, known := u.before[key]
	elapsed := u.at.Sub(flow.at)
	switch {
	case !known:
		flow = udpFlow{u.at, expires, u.before == nil}
	case elapsed >= udpWindow:
		flow = udpFlow{u.at, expires, expires > flow.expires-elapsed+time.Second}
	}
	u.now[key] = flow
	return flow.live
}
