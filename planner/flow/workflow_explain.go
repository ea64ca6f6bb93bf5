package flow

import (
	"fmt"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// explainWorkflows tells how long the longest way of each application takes, what
// runs most of the time, how many copies devices hold at the start, and what is
// expected of requests.
func explainWorkflows(p *formats.Plan, f *formats.FlowPlan) []string {
	var out []string
	for i := range f.Applications {
		a := &f.Applications[i]
		w, names, err := flow.Segments(&formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: a.Segments}, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			continue
		}
		visits, err := w.Visits()
		if err != nil {
			continue
		}
		longest, tasks := time.Duration(0), 0.0
		for _, v := range visits {
			sum := time.Duration(0)
			for g, n := range v.Times {
				sum += time.Duration(n) * waiting * through(p, w, names, g)
				for _, ask := range w.Asks(g) {
					tasks += v.Chance * float64(n) * ask.Tasks
				}
			}
			longest = max(longest, sum)
		}
		out = append(out, fmt.Sprintf("workflow %s: %s rps of %.3g tasks each; its longest way takes %v, with a batch to wait for and one's own at every step; the SLO less the margin is %v, for %s of the requests",
			a.Model, kind.Number(a.RPS), tasks, longest, a.SLOUS.D()-a.MarginUS.D(), a.Percentile))
	}
	var parts []string
	rest, more := 0.0, 0
	for i := range p.Deployment {
		d := &p.Deployment[i]
		busy := 0.0
		for _, l := range d.Pipelines {
			busy += l.Stages[0].GPUs
		}
		if busy < .01*float64(p.Pools[0].Count) {
			rest, more = rest+busy, more+1
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.3g (%d copies of %s, load %v)", d.Model, busy, len(f.Modules[i].Resident), formats.Bytes(f.Modules[i].WeightBytes), f.Modules[i].ColdStartUS.D()))
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d others %.3g", more, rest))
	}
	return append(out, "device time of the services at the planned rates, in devices: "+strings.Join(parts, ", "))
}

// through is the longest path through a segment with the batches of a plan.
func through(p *formats.Plan, w *flow.Workflow, names []string, segment int) time.Duration {
	paths, err := w.Paths(segment)
	if err != nil {
		return 0
	}
	most := time.Duration(0)
	for _, path := range paths {
		sum := time.Duration(0)
		for _, leg := range path {
			step := time.Duration(0)
			for _, id := range leg.Services {
				step = max(step, time.Duration(leg.Work*float64(slowest(p, names[id]))))
			}
			sum += step
		}
		most = max(most, sum)
	}
	return most
}
