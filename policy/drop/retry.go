package drop

import (
	"time"

	"inferplan/policy/flow"
)

// retryEstimate estimates when a refused request is worth sending again: when one that arrives then is expected to be in
// time.
type retryEstimate struct {
	workers         *workerFleet
	planner         *planner
	downstreamTime  []time.Duration // by application: estimated time behind the entry module
	estimatedSecond int64           // the second of that estimate
}

func newRetryEstimate(f *workerFleet, plan *planner) retryEstimate {
	return retryEstimate{workers: f, planner: plan, downstreamTime: make([]time.Duration, len(f.graphTables.Apps)), estimatedSecond: -1}
}

// retryAfter returns the time after which a request is worth sending again: the time by which a request that arrives now
// would exceed its budget, but at least one batch of the entry module. A queue shrinks as fast as time passes while no
// new task enters.
func (g *retryEstimate) retryAfter(now time.Duration, r *flow.Request) time.Duration {
	app := &g.workers.graphTables.Apps[r.Model]
	if g.estimatedSecond != g.planner.second {
		g.estimate()
	}
	m := app.Nodes[0].Service
	batchTime := g.planner.batchTimes[m]
	return max(batchTime, g.workers.batchWait(now, m)+batchTime+g.downstreamTime[r.Model]-(r.Deadline-r.ArrivedAt))
}

// estimate computes, for every application, the time of the longest path behind the entry module, from the
// planner's means. It is used to say when a refused request is worth sending again.
func (g *retryEstimate) estimate() {
	g.estimatedSecond = g.planner.second
	for a := range g.downstreamTime {
		app := &g.workers.graphTables.Apps[a]
		g.downstreamTime[a] = 0
		for _, path := range app.Nodes[0].Paths {
			sum := time.Duration(0)
			for _, n := range path {
				m := app.Nodes[n].Service
				sum += g.planner.queueTimes[m].mean + g.planner.batchTimes[m]
			}
			g.downstreamTime[a] = max(g.downstreamTime[a], sum)
		}
	}
}
