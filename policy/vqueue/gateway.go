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
			req := g.next(in, g.caps[q])
			if req < 0 {
				break
			}
			r := &g.requests[req]
			if network := g.network(r.model); in.loaded != network {
				if len(in.running) == 0 {
					g.change(now, in, network, out)
				}
				break
			}
			if !g.room(in, r) {
				break
			}
			g.unpool(req)
			g.dispatch(in, req, out)
		}
	}
}

// next is the request that goes first among those that an instance may take with a
// cap on the second band; -1: none waits.
func (g *gateway) next(in *instance, most int32) int32 {
	best, full := int32(-1), g.second(in) >= most
	for n := range g.pool {
		if !g.can(in, int32(n)) {
			continue
		}
		for _, req := range g.pool[n] {
			model := g.requests[req].model
			if !g.bands[model] && full {
				break
			}
			if g.serves(in, model) && !g.capped(in, model) {
				if best < 0 || g.before(req, best) < 0 {
					best = req
				}
				break
			}
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
