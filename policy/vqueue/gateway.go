package vqueue

import (
	"time"

	"inferplan/policy"
)

// gateway is like the flow control of an inference gateway in front of servers: two
// bands by priority, the earliest deadline first in each, and a cap on how many
// requests of the second band run at once on an instance. The cap grows by one a
// tick and is halved when requests of the first band are late, or wait too long
// (additive increase, multiplicative decrease).
type gateway struct {
	*pooling
	caps []int32 // by instance
	late bool    // since the last tick
}

func newGateway(p *pooling) gateway {
	p.bands = urgent(p.t)
	g := gateway{pooling: p, caps: make([]int32, len(p.instances))}
	for i := range g.caps {
		g.caps[i] = 1
	}
	return g
}

// waited is the share of the time to its deadline after which a request of the
// first band that still waits counts as late.
const waited = 0.5

// ended hears of an answer.
func (g *gateway) ended(now time.Duration, req int32) {
	if r := &g.requests[req]; g.bands[r.model] && now > r.deadline {
		g.late = true
	}
}

// tick sets the caps.
func (g *gateway) tick(now time.Duration) {
	for n := range g.pool {
		if len(g.pool[n]) == 0 {
			continue
		}
		if r := &g.requests[g.pool[n][0]]; g.bands[r.model] && float64(now-r.arrived) > waited*float64(r.deadline-r.arrived) {
			g.late = true
		}
	}
	for i := range g.caps {
		most, _ := g.holds(&g.instances[i], max(g.instances[i].loaded, 0))
		if g.late {
			g.caps[i] = max(1, g.caps[i]/2)
		} else {
			g.caps[i] = min(g.caps[i]+1, int32(min(most, mostCap)))
		}
	}
	g.late = false
}

// mostCap keeps a cap of a server without a limit in bounds.
const mostCap = 1 << 20

// assign has every instance take what it may and has room for.
func (g *gateway) assign(now time.Duration, out *policy.Actions) {
	for q := range g.instances {
		in := &g.instances[q]
		for in.up() && in.coming < 0 && !in.failed {
			network := g.next(in)
			if network < 0 {
				break
			}
			if in.loaded != network {
				if len(in.running) == 0 {
					g.change(now, in, network, out)
				}
				break
			}
			req := g.pool[network][0]
			if r := &g.requests[req]; !g.room(in, r) || !g.bands[r.model] && g.second(in) >= g.caps[q] {
				break
			}
			g.unpool(req)
			g.dispatch(in, req, out)
		}
	}
}

// next is the network of the request that goes first among those that an instance
// may serve; -1: none waits.
func (g *gateway) next(in *instance) int32 {
	best := int32(-1)
	for n := range g.pool {
		if len(g.pool[n]) > 0 && g.can(in, int32(n)) && (best < 0 || g.before(g.pool[n][0], g.pool[best][0]) < 0) {
			best = int32(n)
		}
	}
	return best
}

// second is how many requests of the second band run on an instance.
func (g *gateway) second(in *instance) int32 {
	n := int32(0)
	for m, running := range in.counts {
		if !g.bands[m] {
			n += running
		}
	}
	return n
}
