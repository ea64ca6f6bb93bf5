package drop

import (
	"time"

	"inferplan/policy/flow"
)

// again says when a request that is refused is worth asking for again: when one
// that comes then is expected to be in time.
type again struct {
	fleet *fleet
	plan  *planner
	along []time.Duration // by application: queueing and batches behind the entry
	since int64           // the second that along is of
}

func newAgain(f *fleet, plan *planner) again {
	return again{fleet: f, plan: plan, along: make([]time.Duration, len(f.own.Apps)), since: -1}
}

// in is the time until then: by how much a request that comes now would exceed
// its budget, but at least one batch of the entry. What is queued shrinks as fast
// as time passes while nothing more is taken in.
func (g *again) in(now time.Duration, r *flow.Request) time.Duration {
	app := &g.fleet.own.Apps[r.Model]
	if g.since != g.plan.second {
		g.estimate()
	}
	m := app.Nodes[0].Service
	least := g.plan.runs[m]
	return max(least, g.fleet.wait(now, m)+least+g.along[r.Model]-(r.Deadline-r.Arrived))
}

// estimate works out the longest way behind every entry.
func (g *again) estimate() {
	g.since = g.plan.second
	for a := range g.along {
		app := &g.fleet.own.Apps[a]
		g.along[a] = 0
		for _, path := range app.Nodes[0].Paths {
			sum := time.Duration(0)
			for _, n := range path {
				m := app.Nodes[n].Service
				sum += g.plan.queues[m].mean + g.plan.runs[m]
			}
			g.along[a] = max(g.along[a], sum)
		}
	}
}
