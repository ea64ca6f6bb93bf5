package flow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// explainWorkflows returns lines of text: for every application its rate and the time of its longest path,
// then which services take most of the devices' time, how many copies devices hold at the start, and which
// models have devices alone.
func explainWorkflows(p *formats.Plan, f *formats.FlowPlan) []string {
	var out []string
	for i := range f.Applications {
		a := &f.Applications[i]
		w, names, err := flow.Segments(&formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: flow.WithWork(a.Segments, f.Generations())}, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			continue
		}
		visits, err := w.Visits()
		if err != nil {
			continue
		}

		// The longest time over all visits, and the mean number of tasks.
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
	out = append(out, "device time of the services at the planned rates, in devices: "+strings.Join(shares(p, f), ", "))
	if list := groupsOf(p); len(list) > 0 {
		out = append(out, "a device runs the models of one group: "+strings.Join(list, "; "))
	}
	return out
}

// deviceGroups returns a line for every group of models with devices of their own. If all models share all
// devices of a kind, it returns nil.
func groupsOf(p *formats.Plan) (out []string) {
	var first []formats.PlacedStage // first stage of each group
	var models [][]string
	for s := range p.Stages() {
		i := slices.IndexFunc(first, func(o formats.PlacedStage) bool { return o.Meets(s.Stage) })
		if i < 0 {
			i, first, models = len(first), append(first, s), append(models, nil)
		}
		models[i] = append(models[i], s.Deployed.Model)
	}
	apart := false
	for i, s := range first {
		out = append(out, fmt.Sprintf("%d %s for %s", s.Replicas, s.Device, strings.Join(models[i], ", ")))
		apart = apart || slices.ContainsFunc(first[:i], func(o formats.PlacedStage) bool { return o.Device == s.Device })
	}
	if !apart {
		return nil
	}
	return out
}

// deviceTimeTexts returns a text for every service that takes at least 1 % of the devices' time, and one
// for all others.
func shares(p *formats.Plan, f *formats.FlowPlan) (parts []string) {
	all, rest, more := 0, 0.0, 0
	for i := range p.Pools {
		all += p.Pools[i].Count
	}
	for i := range p.Deployment {
		d, m := &p.Deployment[i], &f.Modules[i]

		// Sum the device time of the service over all kinds.
		busy, on := 0.0, []string(nil)
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			busy += s.GPUs
			on = append(on, fmt.Sprintf("%.3g on %s in batches of %d, load %v", s.GPUs, s.Device, d.Pipelines[k].Batch, m.On(s.Device).LoadUS.D()))
		}
		if busy < .01*float64(all) {
			rest, more = rest+busy, more+1
			continue
		}

		// With several pools, the text names each kind.
		text := fmt.Sprintf("load %v", m.ColdStartUS.D())
		if len(p.Pools) > 1 {
			text = strings.Join(on, "; ")
		}
		parts = append(parts, fmt.Sprintf("%s %.3g (%d copies of %s, %s)", d.Model, busy, len(m.Resident), document.Bytes(m.WeightBytes), text))
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d others %.3g", more, rest))
	}
	return parts
}

// segmentTime returns the time of the longest path through a segment with the batches of a plan.
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
