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

// Figures returns pairs of figures for a report: what the reference plan promised, and what the plan under check
// carries today or the best plan of today could. note says why there are none.
func Figures(_ context.Context, t *kind.CheckInput) (list []kind.FigurePair, note string, err error) {
	c := newChecker(t)
	if !c.CheckStructure() { // nothing can be computed from a broken structure
		return nil, "figures are not compared: the plan does not fit the profile's blocks", nil
	}
	c.carried = c.evaluatePlan()
	return append(c.ratePairs(), c.latencyPairs()...), "", nil
}

// ratePairs returns pairs of rates: of each model the promised rate and the one carried today, and of the
// objective the promised value and the best that can be reached today, by the plan under check or the best new plan.
// Models that were not promised have no pair. If the plan under check breaks a constraint, its rates are no figures.
func (c *planChecker) ratePairs() []kind.FigurePair {
	var pairs []kind.FigurePair
	valueToday := math.Inf(1)
	for i := range c.Plan.Deployment {
		key, rateToday := c.Plan.Deployment[i].Key(), c.carried.modelRPS[i]
		if math.IsNaN(rateToday) {
			rateToday = 0
		}
		if m := c.Plan.PromiseFor(i); m.Weight > 0 {
			valueToday = min(valueToday, rateToday/m.Weight)
		}
		if oldIndex := deployedIndex(c.Promised, key); oldIndex >= 0 && !c.BreaksConstraint {
			pairs = append(pairs, kind.FigurePair{Metric: "rps", Subject: key.String(), Old: c.Promised.PromiseFor(oldIndex).RPS, New: rateToday, Unit: "rps"})
		}
	}
	return append(pairs, recompute.ThroughputFigures(c.CheckInput, valueToday)...)
}

// latencyPairs returns pairs of latencies of each model: the certified p99, if both plans have one and they differ,
// and the service time of the slowest pipeline today. The time of that is compared with the promised one or, if the
// certified p99 tells what the other pipelines do, with what the plan under check states itself.
func (c *planChecker) latencyPairs() []kind.FigurePair {
	var pairs []kind.FigurePair
	for i := range c.Plan.Deployment {
		key := c.Plan.Deployment[i].Key()
		oldIndex := deployedIndex(c.Promised, key)
		if oldIndex < 0 {
			continue
		}
		reference, subject := &c.Promised.Deployment[oldIndex], " (slowest pipeline)"
		if oldModel, newModel := certifiedModel(c.Promised, key), certifiedModel(c.Plan, key); oldModel != nil && newModel != nil && oldModel.P99US != newModel.P99US {
			pairs = append(pairs, kind.FigurePair{Metric: "p99", Subject: key.String() + " (certified)", Old: recompute.Micros(oldModel.P99US.D()), New: recompute.Micros(newModel.P99US.D()), Unit: "us"})
			reference, subject = &c.Plan.Deployment[i], " (slowest pipeline of this plan)"
		}
		if latencyToday := c.carried.latency[i]; latencyToday > 0 {
			pairs = append(pairs, kind.FigurePair{Metric: "service", Subject: key.String() + subject, Old: recompute.Micros(slowestPipeline(reference)), New: recompute.Micros(latencyToday), Unit: "us"})
		}
	}
	return pairs
}

// certifiedModel returns the certificate of a model, or nil if the plan has none.
func certifiedModel(p *formats.Plan, key formats.ModelClass) *formats.CertifiedModel {
	if p.Certificate == nil {
		return nil
	}
	for i := range p.Certificate.Models {
		if p.Certificate.Models[i].Key() == key {
			return &p.Certificate.Models[i]
		}
	}
	return nil
}

// slowestPipeline returns the largest latency of a model's pipelines, including the time that a batch takes to
// fill.
func slowestPipeline(m *formats.Deployed) time.Duration {
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
		m := p.PromiseFor(i)
		models = append(models, formats.WorkloadModel{Model: p.Deployment[i].Model, Class: p.Deployment[i].Class,
			SLO: document.SLO{Duration: m.SLOUS.D()}, Percentile: m.Percentile, Weight: m.Weight})
	}
	w := &formats.Workload{Format: formats.FormatWorkload, Arrivals: p.Arrivals, Section: models}
	return WithHeadroom(w, p)
}

// WithHeadroom returns a workload with the headroom that a plan keeps for each model: a margin off its SLO, and a
// utilisation that its devices stay below. Values that the workload has itself stay.
func WithHeadroom(w *formats.Workload, p *formats.Plan) *formats.Workload {
	section := formats.PoolOf(p)
	if section == nil || len(section.Headroom) == 0 {
		return w
	}
	reserved := *w
	models := slices.Clone(formats.ModelsOf(w))
	for i := range models {
		index := deployedIndex(p, models[i].Key())
		if index < 0 || index >= len(section.Headroom) {
			continue
		}
		headroom := &section.Headroom[index]
		if models[i].Margin == nil {
			models[i].Margin = &headroom.Margin
		}
		models[i].Utilisation = cmp.Or(models[i].Utilisation, headroom.Utilisation)
	}
	reserved.Section = models
	return &reserved
}
