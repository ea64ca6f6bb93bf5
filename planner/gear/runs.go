package gear

import (
	"context"
	"fmt"
	"math"

	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/solver/milp"
)

// Tables are the run-time tables of gears on a placement: what a simulation of
// them, outside of planning, needs.
func (p *Problem) Tables(configs []Config, gears []gear.Gear) *policy.Tables {
	return newBench(p, configs, nil, 0).with(p.Edges[len(p.Edges)-1], gears...)
}

// Tables are the run-time tables of the outcome's gears, for the problem as it
// was solved.
func (out *Outcome) Tables(*Problem) *policy.Tables {
	return newBench(out.Problem, out.Configs, out.Chains, 0).whole(out.Gears)
}

// whole are the run-time tables of gears, a range each.
func (b *bench) whole(gears []Planned) *policy.Tables {
	p := b.p
	list := make([]gear.Gear, len(gears))
	for r := range gears {
		g := &gears[r]
		list[r] = g.Cascade.Gear(p.Edges[r], g.MinQueue, g.Shares)
	}
	return b.with(p.Edges[len(p.Edges)-1], list...)
}

// Again tries the gear of a range once more at its upper edge: a fresh trial, with a
// stream of its own and as long as passing says something of. Its requests bring the samples
// planned on.
func (out *Outcome) Again(ctx context.Context, r int, seed uint64) (Trial, error) {
	return AgainOn(ctx, out, out.Problem.Planned, r, seed)
}

// AgainOn tries the gear of a range of an outcome as Again does, with requests that bring other samples.
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

// Trials tries cascades alone on a placement at a rate, as gears of plans are tried. taken is the load of the
// busiest device per request per second.
func Trials(p *Problem, configs []Config, seed uint64) func(ctx context.Context, c *Cascade, taken float64, minQueue int, shares [][]float64, rate float64) (Trial, error) {
	b := newBench(p, configs, nil, seed)
	return func(ctx context.Context, c *Cascade, taken float64, minQueue int, shares [][]float64, rate float64) (Trial, error) {
		b.minQueue = minQueue
		return b.try(ctx, &stair{cascade: c, shares: shares, taken: taken}, rate)
	}
}

// Cascades are those of whole models that keep the SLO alone.
func (p *Problem) Cascades() []Cascade {
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = newFleet(p, nil, nil).whole(m)
	}
	return p.inTime(Enumerate(p.Planned, p.Grid, usable))
}

// Fluid is the placement that lets most ranges, and then the most accurate
// cascades, fit when queueing is left out; with the Pareto front of cascades on
// it, cheapest first.
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
