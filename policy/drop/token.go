package drop

import "time"

// token admits a request at the entry if the modules' backlogs leave it time:
// every module works off what was admitted at its planned rate, and what is
// ahead along the longest way, with the execution of planned batches and one
// more of the first module, must fit the SLO.
func (p *Policy) token(now time.Duration, model int32, deadline time.Duration) bool {
	app := &p.fleet.own.Apps[model]
	longest, runs := time.Duration(0), time.Duration(0)
	for i := range app.Nodes[0].Paths {
		backlog, run := p.ahead(now, app.Nodes[0].Service), p.plan.runs[app.Nodes[0].Service]
		for _, n := range app.Nodes[0].Paths[i] {
			backlog, run = backlog+p.ahead(now, app.Nodes[n].Service), run+p.plan.runs[app.Nodes[n].Service]
		}
		longest, runs = max(longest, backlog), max(runs, run)
	}
	left := deadline - now - runs - p.plan.runs[app.Nodes[0].Service]
	if float64(longest) > p.opt.Token*float64(left) {
		return false
	}
	for i := range app.Nodes {
		m := app.Nodes[i].Service
		if rate := p.fleet.modules[m].capacity; rate > 0 {
			p.fluid[m] = max(p.fluid[m], now) + time.Duration(app.Nodes[i].Chance*float64(time.Second)/rate)
		}
	}
	return true
}

// ahead is a module's backlog.
func (p *Policy) ahead(now time.Duration, service int32) time.Duration {
	return max(0, p.fluid[service]-now)
}
