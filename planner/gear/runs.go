package gear

import (
	"context"
	"fmt"
	"math"

	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/solver/milp"
)

// Tables returns the run-time tables of gears on a placement, for a simulation outside of planning.
func (p *Problem) Tables(configs []Config, gears []gear.Gear) *policy.Tables {
	return newBench(p, configs, nil, 0).with(p.Edges[len(p.Edges)-1], gears...)
}

// Tables returns the run-time tables of the plan's gears, for the problem as it was solved.
func (out *Outcome) Tables(*Problem) *policy.Tables {
	return newBench(out.Problem, out.Configs, out.Chains, 0).whole(out.Gears)
}

// gearTables returns the run-time tables of gears, one for each range.
func (b *bench) whole(gears []Planned) *policy.Tables {
	p := b.p
	list := make([]gear.Gear, len(gears))
	for r := range gears {
		g := &gears[r]
		list[r] = g.Cascade.Gear(p.Edges[r], g.MinQueue, g.Shares)
	}
	return b.with(p.Edges[len(p.Edges)-1], list...)
}

// RetryGear tries the gear of a range again at its upper edge: one run with a stream of its own, as long as the
// promise of a trial is about. Its requests bring the planning samples.
func (out *Outcome) Again(ctx context.Context, r int, seed uint64) (Trial, error) {
	return AgainOn(ctx, out, out.Problem.Planned, r, seed)
}

// RetryGearOn is RetryGear with requests that bring other samples.
func AgainOn(ctx context.Context, out *Outcome, samples *Samples, r int, seed uint64) (Trial, error) {
	p, g := out.Problem, &out.Gears[r]
	b := newBench(p, out.Configs, out.Chains, seed)
	edge := p.Edges[r]
	s, err := b.run(ctx, &attempt{c: &g.Cascade, minQueue: g.MinQueue, shares: g.Shares, rate: edge,
		length: freshRun * runLength(p.triedWithin(&g.Cascade, edge), edge), limit: p.SLO, most: 1, on: samples})
	if err != nil {
		return Trial{}, err
	}
	return s.trial(p.SLO), nil
}

// NewTrialFunc returns a function that tries cascades on a placement at a rate, as gears of plans are tried.
// maxLoad is the load of the busiest device or NIC (seconds per request).
func Trials(p *Problem, configs []Config, seed uint64) func(ctx context.Context, c *Cascade, taken float64, minQueue int, shares [][]float64, rate float64) (Trial, error) {
	b := newBench(p, configs, nil, seed)
	return func(ctx context.Context, c *Cascade, taken float64, minQueue int, shares [][]float64, rate float64) (Trial, error) {
		b.minQueue = minQueue
		return b.try(ctx, &stair{cascade: c, shares: shares, taken: taken}, rate)
	}
}

// WholeCascades returns the cascades of whole models that keep the SLO at batch 1.
func (p *Problem) Cascades() []Cascade {
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = newFleet(p, nil, nil).whole(m)
	}
	return p.inTime(Enumerate(p.Planned, p.Grid, usable))
}

// SolveWithoutQueueing returns the best placement of the fluid model, which serves the most ranges and then is the
// most accurate, and the front of cascades on it, the cheapest first. Only instruments call it.
func (p *Problem) Fluid(ctx context.Context, solver milp.Solver) ([]Config, []Cascade, error) {
	if err := p.check(); err != nil {
		return nil, nil, fmt.Errorf("placing models: %w", err)
	}
	x, err := wholeFleet(ctx, p, solver, nil)
	if err != nil {
		return nil, nil, err
	}
	top, _, err := x.ranked(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	l := top[0].l
	front, err := l.front(ctx, -1, math.MaxInt32)
	return l.configs, chosen(x.list, front), err
}
