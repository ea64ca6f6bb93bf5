package drop

import (
	"time"

	"inferplan/policy"
)

// entryGate decides whether a request is admitted when it arrives.
type entryGate struct {
	variant       *Variant
	backlogFactor float64 // Options.BacklogFactor
	workers       *workerFleet
	planner       *planner
	backlogEnd    []time.Duration // by service: when all admitted work would be done at the planned rate
}

// admits is called for each request that arrives. It reports whether the request may come in, by the variant's rule and
// by the backlogs of the modules. A backlogFactor of 0 switches the test of the backlogs off.
func (g *entryGate) admits(now time.Duration, ev *policy.Event) bool {
	return (g.variant.AdmitRequest == nil || g.variant.AdmitRequest()) && (g.backlogFactor <= 0 || g.hasTimeForBacklog(now, ev.Model, ev.Deadline))
}

// hasTimeForBacklog reports whether a request of a model (its application) that arrives now has time to wait behind the
// backlogs of the modules on its paths. A backlog is the time that a module needs for what was admitted before, at its
// planned rate. If the request has the time, it is added to the backlogs. It has the time if
//
//	maxBacklog <= backlogFactor · (deadline - now - maxRunTime - one batch of the entry module)
//
// where maxBacklog is the largest sum of backlogs along a path, and maxRunTime the largest sum of batch times.
func (g *entryGate) hasTimeForBacklog(now time.Duration, model int32, deadline time.Duration) bool {
	app := &g.workers.graphTables.Apps[model]

	// Find the largest backlog and the longest run time of a path.
	maxBacklog := g.backlog(now, app.Nodes[0].Service) + app.Nodes[0].LongestTime(func(node int32) time.Duration { return g.backlog(now, app.Nodes[node].Service) })
	maxRunTime := g.planner.batchTimes[app.Nodes[0].Service] + app.Nodes[0].LongestTime(func(node int32) time.Duration { return g.planner.batchTimes[app.Nodes[node].Service] })

	// Refuse the request if the backlog takes too much of the time that is left.
	remaining := deadline - now - maxRunTime - g.planner.batchTimes[app.Nodes[0].Service]
	if float64(maxBacklog) > g.backlogFactor*float64(remaining) {
		return false
	}

	// Add the request to the backlogs of the modules that it may reach, with its chance to reach them. backlogEnd is when a
	// module has worked off all that was admitted, at its capacity in tasks per second.
	for i := range app.Nodes {
		service := app.Nodes[i].Service
		if rate := g.workers.modules[service].capacity; rate > 0 {
			g.backlogEnd[service] = max(g.backlogEnd[service], now) + time.Duration(app.Nodes[i].ReachChance*float64(time.Second)/rate)
		}
	}
	return true
}

// backlog returns the time that a module (a service) still needs for the requests admitted so far.
func (g *entryGate) backlog(now time.Duration, service int32) time.Duration {
	return max(0, g.backlogEnd[service]-now)
}
