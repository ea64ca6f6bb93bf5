package verify

import (
	"context"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// Figures returns samples that compare today with the promises: of each application the rate and the
// longest path, and the objective with the best that can be planned today.
func Figures(_ context.Context, t *kind.Today) (list []kind.Sample, note string, err error) {
	before := *t
	before.Plan = t.Against
	c, was := newChecker(t), newChecker(&before)
	if c.plan == nil || was.plan == nil || !c.Sound() || !was.Sound() {
		return nil, "figures are not compared: a plan does not fit the profile's blocks", nil
	}
	c.hold()
	was.hold()
	if c.plan.Workflow() != was.plan.Workflow() {
		return nil, "figures are not compared: one of the plans has workflows, the other has not", nil
	}

	// Times of the promised plan are those that it states.
	was.took = promised(t.Against)
	kept := 0.0
	for i := range c.plan.Applications {
		a := &c.plan.Applications[i]
		now := min(a.RPS, c.carried(i))
		if v := now / a.Weight; i == 0 || v < kept {
			kept = v
		}
		at := slices.IndexFunc(was.plan.Applications, func(o formats.FlowApplication) bool { return o.Model == a.Model })
		if at < 0 {
			continue
		}
		if !t.Broken {
			list = append(list, kind.Sample{Metric: "rps", What: a.Model, Old: was.plan.Applications[at].RPS, New: now, Unit: "rps"})
		}
		list = append(list, kind.Sample{Metric: "p99", What: a.Model + " (longest path)", Old: recompute.US(was.longest(at)), New: recompute.US(c.longest(i)), Unit: "us"})
	}
	// A new plan is not simulated. It is assumed to sustain the same share of what its devices carry
	// without queueing as the promised plan does.
	o, part := &t.Against.Objective, 1.0
	if o.Fluid != nil && *o.Fluid > 0 {
		part = o.Value / *o.Fluid
	}
	if best, ok := t.Reachable(kept / part); ok && o.Name == "throughput" {
		list = append(list, kind.Sample{Metric: "rps", What: "objective, planned again", Old: o.Value, New: best * part, Unit: "rps per weight"})
	}
	return list, "", nil
}

// promisedBatchTimes returns the longest batch time of each model that a plan states.
func promised(p *formats.Plan) map[string]time.Duration {
	out := map[string]time.Duration{}
	for i := range p.Deployment {
		for _, l := range p.Deployment[i].Pipelines {
			for _, took := range l.Stages[0].InferUS {
				out[p.Deployment[i].Model] = max(out[p.Deployment[i].Model], took.D())
			}
		}
	}
	return out
}

// WorkloadOf returns the workload that a plan was made for. Targets are times, modules have the chosen
// variants, and length files are replaced by their rows.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	var list formats.Applications
	for i := range formats.FlowOf(p).Applications {
		a := &formats.FlowOf(p).Applications[i]
		segments := spelled(a.Segments)
		for g := range segments {
			for k := range segments[g].Modules {
				if m := &segments[g].Modules[k]; len(m.Sample) > 0 {
					m.LengthsFile = ""
				}
			}
		}
		list = append(list, formats.Application{Name: a.Model, SLO: document.SLO{Duration: a.SLOUS.D()}, Percentile: a.Percentile, Weight: a.Weight, RPS: a.RPS, Modules: a.Modules,
			Parameters: a.Parameters, Segments: segments})
	}
	return &formats.Workload{Format: formats.FormatWorkload, Arrivals: p.Arrivals, Section: list}
}

// withEmptyAfter returns a copy of segments in which modules without predecessors have an empty list of
// them. Plans leave that list out.
func spelled(list []formats.Segment) []formats.Segment {
	out := slices.Clone(list)
	for i := range out {
		out[i].Modules = slices.Clone(out[i].Modules)
		for k := range out[i].Modules {
			if m := &out[i].Modules[k]; m.After == nil {
				m.After = []string{}
			}
		}
	}
	return out
}
