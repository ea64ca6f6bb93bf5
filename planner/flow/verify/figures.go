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

// Figures returns the figures of plan check, promised and today: of each application the rate and the longest path, and the objective
// with the best that can be planned today. If the plans cannot be compared, note says why. A plan that breaks a constraint has no rates,
// as they would be those of a plan that does not hold.
func Figures(_ context.Context, t *kind.CheckInput) (list []kind.FigurePair, note string, err error) {
	promisedToday := *t
	promisedToday.Plan = t.Promised
	current, promised := newChecker(t), newChecker(&promisedToday)
	if current.section == nil || promised.section == nil || !current.CheckStructure() || !promised.CheckStructure() {
		return nil, "figures are not compared: a plan does not fit the profile's blocks", nil
	}
	current.computeToday()
	promised.computeToday() // compiles the graphs. Its batch times are replaced below.
	if current.section.Workflow() != promised.section.Workflow() {
		return nil, "figures are not compared: one of the plans has workflows, the other has not", nil
	}

	// Batch times of the promised plan are those that it states, not those of today's profile.
	promised.batchTime = promisedBatchTimes(t.Promised)

	// heldFactor is the least rate over weight that the applications still get today. That is the objective of throughput.
	heldFactor := 0.0
	for i := range current.section.Applications {
		a := &current.section.Applications[i]
		heldRate := min(a.RPS, current.carriedRate(i))
		if v := heldRate / a.Weight; i == 0 || v < heldFactor {
			heldFactor = v
		}
		index := slices.IndexFunc(promised.section.Applications, func(o formats.FlowApplication) bool { return o.Model == a.Model })
		if index < 0 {
			continue
		}
		if !t.BreaksConstraint {
			list = append(list, kind.FigurePair{Metric: "rps", Subject: a.Model, Old: promised.section.Applications[index].RPS, New: heldRate, Unit: "rps"})
		}
		list = append(list, kind.FigurePair{Metric: "service", Subject: a.Model + " (longest path)", Old: recompute.Micros(promised.longestPathTime(index)), New: recompute.Micros(current.longestPathTime(i)), Unit: "us"})
	}
	return append(list, recompute.ThroughputFigures(t, heldFactor)...), "", nil
}

// promisedBatchTimes returns the longest batch time of each model that a plan states.
func promisedBatchTimes(p *formats.Plan) map[string]time.Duration {
	maxTimes := map[string]time.Duration{}
	for i := range p.Deployment {
		for _, l := range p.Deployment[i].Pipelines {
			for _, batchTime := range l.Stages[0].InferUS {
				maxTimes[p.Deployment[i].Model] = max(maxTimes[p.Deployment[i].Model], batchTime.D())
			}
		}
	}
	return maxTimes
}

// WorkloadOf returns the workload that a plan was made for, as far as the plan states it. SLOs are times instead of multiples, modules
// have the chosen models (a plan has no others), and length files are replaced by their rows. The plan itself stays as it is.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	var list formats.Applications
	for i := range formats.FlowOf(p).Applications {
		a := &formats.FlowOf(p).Applications[i]
		segments := withEmptyAfter(a.Segments) // a copy
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

// withEmptyAfter returns a copy of segments, with a copy of every module, in which modules without predecessors
// have an empty list of them (the field "after" of documents). Plans leave that list out.
func withEmptyAfter(stored []formats.Segment) []formats.Segment {
	segments := slices.Clone(stored)
	for i := range segments {
		segments[i].Modules = slices.Clone(segments[i].Modules)
		for k := range segments[i].Modules {
			if m := &segments[i].Modules[k]; m.Predecessors == nil {
				m.Predecessors = []string{}
			}
		}
	}
	return segments
}
