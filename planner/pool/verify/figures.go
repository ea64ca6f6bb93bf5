package verify

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// Figures compares what the reference plan promised with what the plan under check carries today, and with the
// best plan of today.
func Figures(_ context.Context, t *kind.Today) (list []kind.Sample, note string, err error) {
	c := newChecker(t)
	if !c.Sound() { // nothing can be computed from a broken structure
		return nil, "figures are not compared: the plan does not fit the profile's blocks", nil
	}
	c.held = c.hold()
	return append(c.rates(), c.latencies()...), "", nil
}

// rateSamples compares each model's promised rate with what the plan carries today, and the promised objective with
// the best one that can be reached today.
func (c *checker) rates() []kind.Sample {
	var out []kind.Sample
	kept := math.Inf(1)
	for i := range c.Plan.Deployment {
		key, now := c.Plan.Deployment[i].Key(), c.held.rps[i]
		if math.IsNaN(now) {
			now = 0
		}
		if m := c.Plan.Promised(i); m.Weight > 0 {
			kept = min(kept, now/m.Weight)
		}
		if old := deployed(c.Against, key); old >= 0 && !c.Broken {
			out = append(out, kind.Sample{Metric: "rps", What: key.String(), Old: c.Against.Promised(old).RPS, New: now, Unit: "rps"})
		}
	}
	// A plan that is planned again is not tested. It is assumed to hold the same part of what its devices carry.
	o, part := &c.Against.Objective, 1.0
	if o.Fluid != nil && c.Planned != nil && c.Planned.Objective.Fluid == nil {
		part = o.Value / *o.Fluid
	}
	best, ok := c.Reachable(kept / part)
	best *= part
	if ok && c.Against.Objective.Name == "throughput" && !math.IsInf(best, 1) {
		out = append(out, kind.Sample{Metric: "rps", What: "objective, planned again", Old: c.Against.Objective.Value, New: best, Unit: "rps per weight"})
	}
	return out
}

// latencySamples compares the certified p99 of each model, if both plans have one and they differ, and the latency of
// the slowest pipeline by the profile of today.
func (c *checker) latencies() []kind.Sample {
	var out []kind.Sample
	for i := range c.Plan.Deployment {
		key := c.Plan.Deployment[i].Key()
		old := deployed(c.Against, key)
		if old < 0 {
			continue
		}
		if a, b := certified(c.Against, key), certified(c.Plan, key); a != nil && b != nil && a.P99US != b.P99US {
			out = append(out, kind.Sample{Metric: "p99", What: key.String() + " (certified)", Old: float64(a.P99US) / 1000, New: float64(b.P99US) / 1000, Unit: "us"})
		}
		if now := c.held.latency[i]; now > 0 {
			was := slowest(&c.Against.Deployment[old])
			out = append(out, kind.Sample{Metric: "p99", What: key.String() + " (slowest pipeline)", Old: recompute.US(was), New: recompute.US(now), Unit: "us"})
		}
	}
	return out
}

// certifiedModel returns the certificate of a model, or nil if the plan has none.
func certified(p *formats.Plan, key formats.ModelClass) *formats.CertifiedModel {
	if p.Certified == nil {
		return nil
	}
	for i := range p.Certified.Models {
		if p.Certified.Models[i].Key() == key {
			return &p.Certified.Models[i]
		}
	}
	return nil
}

// slowestPipeline returns the largest latency of a model's pipelines, with the filling of the batch.
func slowest(m *formats.Deployed) time.Duration {
	var d time.Duration
	for i := range m.Pipelines {
		d = max(d, m.Pipelines[i].LatencyUS.D()+m.Pipelines[i].BatchBuildUS.D())
	}
	return d
}

// WorkloadOf returns the workload that a plan was made for, with its SLOs as times.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	var models formats.WorkloadModels
	for i := range p.Deployment {
		m := p.Promised(i)
		models = append(models, formats.WorkloadModel{Model: p.Deployment[i].Model, Class: p.Deployment[i].Class,
			SLO: document.SLO{Duration: m.SLOUS.D()}, Percentile: m.Percentile, Weight: m.Weight})
	}
	w := &formats.Workload{Format: formats.FormatWorkload, Arrivals: p.Arrivals, Section: models}
	return Reserved(w, p)
}

// WithHeadroom returns a workload with what a plan keeps back of its models (margin and utilisation). Values that
// the workload has itself stay.
func Reserved(w *formats.Workload, p *formats.Plan) *formats.Workload {
	s := formats.PoolOf(p)
	if s == nil || len(s.Headroom) == 0 {
		return w
	}
	out := *w
	models := slices.Clone(formats.ModelsOf(w))
	for i := range models {
		at := deployed(p, models[i].Key())
		if at < 0 || at >= len(s.Headroom) {
			continue
		}
		h := &s.Headroom[at]
		if models[i].Margin == nil {
			models[i].Margin = &h.Margin
		}
		models[i].Utilisation = cmp.Or(models[i].Utilisation, h.Utilisation)
	}
	out.Section = models
	return &out
}
