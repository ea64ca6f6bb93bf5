package drop

import "time"

// token admits a request at the entry if the modules' backlogs leave it time:
// every module works off what was admitted at its planned rate, and what is
// ahead along the longest way, with the execution of planned batches and one
// more of the first module, must fit the SLO.
func (p *Policy) token(now time.Duration, model int32, deadline time.Duration) bool {
	app := &p.own.Apps[model]
	longest := time.Duration(0)
	for _, path := range app.Nodes[0].Paths {
		sum := time.Duration(0)
		for _, i := range path {
			sum += p.ahead(now, app.Nodes[i].Service)
		}
		longest = max(longest, sum)
	}
	first := app.Nodes[0].Service
	if now+longest+p.ahead(now, first)+p.plan.runs[first] > deadline {
		return false
	}
	for i := range app.Nodes {
		m := &p.modules[app.Nodes[i].Service]
		if rate := p.plan.load[app.Nodes[i].Service].capacity; rate > 0 {
			m.fluid = max(m.fluid, now) + time.Duration(app.Nodes[i].Chance*float64(time.Second)/rate)
		}
	}
	return true
}

// ahead is a module's backlog and the run of a planned batch.
func (p *Policy) ahead(now time.Duration, service int32) time.Duration {
	return max(0, p.modules[service].fluid-now) + p.plan.runs[service]
}
