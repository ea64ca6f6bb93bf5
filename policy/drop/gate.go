package drop

import (
	"time"

	"inferplan/policy"
)

// entryGate decides at the entry whether a request is admitted.
type gate struct {
	*Variant
	times float64 // Options.BacklogFactor
	fleet *fleet
	plan  *planner
	fluid []time.Duration // by service: when all admitted work would be done at the planned rate
}

// admits returns true if a request may come in.
func (g *gate) admits(now time.Duration, ev *policy.Event) bool {
	return (g.Admit == nil || g.Admit()) && (g.times <= 0 || g.token(now, ev.Model, ev.Deadline))
}

// hasTimeForBacklog returns true, and counts the request, if the backlogs of the modules leave it time. Every module is
// assumed to work off admitted requests at its planned rate. With the largest backlog along a path,
//
//	maxBacklog <= backlogFactor · (deadline - now - maxRunTime - one batch of the entry module)
func (g *gate) token(now time.Duration, model int32, deadline time.Duration) bool {
	app := &g.fleet.own.Apps[model]
	longest, runs := time.Duration(0), time.Duration(0)
	for i := range app.Nodes[0].Paths {
		backlog, run := g.ahead(now, app.Nodes[0].Service), g.plan.runs[app.Nodes[0].Service]
		for _, n := range app.Nodes[0].Paths[i] {
			backlog, run = backlog+g.ahead(now, app.Nodes[n].Service), run+g.plan.runs[app.Nodes[n].Service]
		}
		longest, runs = max(longest, backlog), max(runs, run)
	}
	left := deadline - now - runs - g.plan.runs[app.Nodes[0].Service]
	if float64(longest) > g.times*float64(left) {
		return false
	}
	for i := range app.Nodes {
		m := app.Nodes[i].Service
		if rate := g.fleet.modules[m].capacity; rate > 0 {
			g.fluid[m] = max(g.fluid[m], now) + time.Duration(app.Nodes[i].Chance*float64(time.Second)/rate)
		}
	}
	return true
}

// backlog returns the time that a module needs for the requests admitted so far.
func (g *gate) ahead(now time.Duration, service int32) time.Duration {
	return max(0, g.fluid[service]-now)
}
