package drop

import (
	"time"

	"inferplan/policy"
)

// entryGate decides at the entry whether a request is admitted.
type entryGate struct {
	variant       *Variant
	backlogFactor float64 // Options.BacklogFactor
	workers       *workerFleet
	planner       *planner
	backlogEnd    []time.Duration // by service: when all admitted work would be done at the planned rate
}

// admits returns true if a request may come in.
func (g *entryGate) admits(now time.Duration, ev *policy.Event) bool {
	return (g.variant.AdmitRequest == nil || g.variant.AdmitRequest()) && (g.backlogFactor <= 0 || g.hasTimeForBacklog(now, ev.Model, ev.Deadline))
}

// hasTimeForBacklog returns true, and counts the request, if the backlogs of the modules leave it time. Every module is
// assumed to work off admitted requests at its planned rate. With the largest backlog along a path,
//
//	maxBacklog <= backlogFactor · (deadline - now - maxRunTime - one batch of the entry module)
func (g *entryGate) hasTimeForBacklog(now time.Duration, model int32, deadline time.Duration) bool {
	app := &g.workers.graphTables.Apps[model]
	maxBacklog, maxRunTime := time.Duration(0), time.Duration(0)
	for i := range app.Nodes[0].Paths {
		backlog, runTime := g.backlog(now, app.Nodes[0].Service), g.planner.batchTimes[app.Nodes[0].Service]
		for _, n := range app.Nodes[0].Paths[i] {
			backlog, runTime = backlog+g.backlog(now, app.Nodes[n].Service), runTime+g.planner.batchTimes[app.Nodes[n].Service]
		}
		maxBacklog, maxRunTime = max(maxBacklog, backlog), max(maxRunTime, runTime)
	}
	remaining := deadline - now - maxRunTime - g.planner.batchTimes[app.Nodes[0].Service]
	if float64(maxBacklog) > g.backlogFactor*float64(remaining) {
		return false
	}
	for i := range app.Nodes {
		m := app.Nodes[i].Service
		if rate := g.workers.modules[m].capacity; rate > 0 {
			g.backlogEnd[m] = max(g.backlogEnd[m], now) + time.Duration(app.Nodes[i].ReachChance*float64(time.Second)/rate)
		}
	}
	return true
}

// backlog returns the time that a module needs for the requests admitted so far.
func (g *entryGate) backlog(now time.Duration, service int32) time.Duration {
	return max(0, g.backlogEnd[service]-now)
}
