package drop

import (
	"time"

	"inferplan/policy/flow"
)

// retryEstimate estimates when a refused request is worth sending again: when one that arrives then is expected to be in
// time.
type again struct {
	fleet *fleet
	plan  *planner
	along []time.Duration // by application: estimated time behind the entry module
	since int64           // the second of that estimate
}

func newAgain(f *fleet, plan *planner) again {
	return again{fleet: f, plan: plan, along: make([]time.Duration, len(f.own.Apps)), since: -1}
}

// retryAfter returns the time after which a request is worth sending again: the time by which a request that arrives now
// would exceed its budget, but at least one batch of the entry module. A queue shrinks as fast as time passes while no
// new task enters.
func (g *again) in(now time.Duration, r *flow.Request) time.Duration {
	app := &g.fleet.own.Apps[r.Model]
	if g.since != g.plan.second {
		g.estimate()
	}
	m := app.Nodes[0].Service
	least := g.plan.runs[m]
	return max(least, g.fleet.wait(now, m)+least+g.along[r.Model]-(r.Deadline-r.Arrived))
}

// estimate computes, for every application, the time of the longest path behind the entry module.
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
