package pool

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/sim"
)

// simulate looks in short runs for the load that every model sustains.
func (a *tuning) simulate(ctx context.Context, t *attempt) error {
	v, err := prove(t.res.Plan, a.cert)
	if err != nil {
		return err
	}
	if v.asked.Duration > coarseLeast {
		v.sc.Duration = max(v.asked.Duration/coarsePart, coarseLeast)
		v.sc.Warmup = v.sc.Duration / 10
	}
	var from []float64
	if a.best != nil && len(a.best.loads) > 0 {
		from = a.best.loads
	}
	search := v.loads(t.res.Plan, (v.asked.Runs+1)/2, from)
	search.Least = a.reach(t, inReach)
	found, err := sim.FindOwnLoads(ctx, v.sc, search)
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	t.loads, t.short = found.Loads, search.Least != nil && slices.Max(found.Loads) == 0
	a.judge(t)
	return nil
}

// reach are the loads at which a plan sustains a part of what the best so far does; nil:
// there is none, or another measure of the best.
func (a *tuning) reach(t *attempt, part float64) (loads []float64) {
	if a.best == nil || !a.grows() || !(a.best.rate > 0) {
		return nil
	}
	for i := range t.res.Plan.Deployment {
		m := t.res.Plan.Promised(i)
		loads = append(loads, part*a.best.rate*m.Weight/m.RPS)
	}
	return loads
}

// loads is what loads are looked for. Models that take turns on devices have the same.
func (v *proving) loads(plan *formats.Plan, runs int, from []float64) sim.OwnSearch {
	return sim.OwnSearch{
		Attainment: v.asked.Attainment, Runs: runs, Step: loadStep, Most: mostLoad, From: from,
		Together: slices.ContainsFunc(plan.Pools, func(p formats.Pool) bool { return p.TimeShared() }),
	}
}

// judge works out what a plan is worth at its loads.
func (a *tuning) judge(t *attempt) {
	t.rate, t.floors = math.Inf(1), true
	gpus, spent := 0.0, 0.0
	for i := range t.loads {
		m := t.res.Plan.Promised(i)
		sustained := t.loads[i] * m.RPS
		t.rate = min(t.rate, sustained/m.Weight)
		t.floors = t.floors && meets(sustained, a.floor(i))
		own := 0.0
		for _, p := range t.res.Plan.Deployment[i].Pipelines {
			for _, s := range p.Stages {
				own += s.GPUs
			}
		}
		gpus, spent = gpus+own, spent+own*m.Weight/max(sustained, 1e-9)
	}
	t.hope = gpus / max(spent, 1e-12)
}

// certify looks in long runs for what the best plan sustains, and the best of those
// with one margin where that is close. The better one promises what it sustained.
func (a *tuning) certify(ctx context.Context) error {
	if len(a.best.loads) == 0 {
		return nil
	}
	t := a.plain
	if t == a.best || t != nil && !(a.grows() && t.rate < a.best.rate && t.rate > a.best.rate*(1-close)) {
		t = nil
	}
	if err := a.prove(ctx, a.best, nil); err != nil || t == nil {
		return err
	}
	if err := a.prove(ctx, t, a.reach(t, 1)); err != nil {
		return err
	}
	if !t.short && a.compare(t, a.best) > 0 {
		a.best = t
	}
	return nil
}

// prove looks in long runs for what a plan sustains, from the least loads on that are
// of use, and lets it promise that.
func (a *tuning) prove(ctx context.Context, t *attempt, least []float64) error {
	v, err := prove(t.res.Plan, a.cert)
	if err != nil {
		return err
	}
	search := v.loads(t.res.Plan, v.asked.Runs, t.loads)
	search.Least = least
	found, err := sim.FindOwnLoads(ctx, v.sc, search)
	if err != nil {
		return fmt.Errorf("certifying: %w", err)
	}
	if t.loads = found.Loads; least != nil && found.Report == nil {
		t.short = true
		return nil
	}
	if a.judge(t); found.Report == nil || !a.grows() && !t.floors {
		return Certify(ctx, t.res.Plan, a.cert)
	}
	// The load at which promises of at most the planned rates come to what is sustained.
	load, parts, capped := 1., make([]float64, len(t.loads)), false
	for i := range t.loads {
		m := t.res.Plan.Promised(i)
		need := t.rate * m.Weight / m.RPS
		if !a.grows() {
			need = a.floor(i) / m.RPS
		}
		load = max(load, need)
	}
	for i, l := range t.loads {
		parts[i] = min(1, l/load)
		capped = capped || l > load
	}
	shown := found.Report
	if capped {
		if shown, err = v.at(ctx, load, parts); err != nil {
			return err
		}
		if slices.ContainsFunc(shown.Models, func(m formats.ModelReport) bool { return m.Attainment < v.asked.Attainment }) {
			return Certify(ctx, t.res.Plan, a.cert) // less load for one is more loss for another: rare
		}
	}
	if slices.Min(parts) < leastPromise {
		return Certify(ctx, t.res.Plan, a.cert)
	}
	promise(t.res, parts)
	v.certify(t.res.Plan, load, shown)
	return nil
}
