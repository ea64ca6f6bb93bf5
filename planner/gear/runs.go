package gear

import (
	"context"
	"fmt"
	"math/bits"

	"inferplan/policy"
	"inferplan/policy/gear"
)

// Tables are the run-time tables of gears on a placement: what a simulation of
// them, outside of planning, needs.
func (p *Problem) Tables(pl *Placement, gears []gear.Gear) *policy.Tables {
	return newBench(p, pl.Configs, nil, 0).with(p.Edges[len(p.Edges)-1], gears...)
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
		list[r] = b.table(&attempt{c: &g.Cascade, minQueue: g.MinQueue, shares: g.Shares, rate: p.Edges[r]})
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

// Trials tries cascades alone on a placement at a rate, as gears of plans are tried.
func Trials(p *Problem, pl *Placement, seed uint64) func(ctx context.Context, c *Cascade, minQueue int, shares [][]float64, rate float64) (Trial, error) {
	b := newBench(p, pl.Configs, nil, seed)
	return func(ctx context.Context, c *Cascade, minQueue int, shares [][]float64, rate float64) (Trial, error) {
		b.minQueue = minQueue
		return b.try(ctx, &stair{cascade: c, shares: shares, taken: pl.Load(p.works([]Cascade{*c})[0])}, rate)
	}
}

// Cascades are those that keep the SLO alone on identical devices, and what each of
// their models works per request, in seconds.
func (p *Problem) Cascades() (list []Cascade, work [][]float64) {
	list = p.inTime(Enumerate(p.Planned, p.Grid, p.usable()))
	return list, p.works(list)
}

// Fluid is the placement that lets most ranges, and then the most accurate
// cascades, fit when queueing is left out; with the Pareto front of cascades on
// it, cheapest first.
func (p *Problem) Fluid() (*Placement, []Cascade, error) {
	if err := p.check(); err != nil {
		return nil, nil, fmt.Errorf("placing models: %w", err)
	}
	x, err := wholeFleet(context.Background(), p, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	top, _, err := x.ranked(context.Background(), 1)
	if err != nil {
		return nil, nil, err
	}
	l := top[0].l
	front, err := l.front(context.Background(), -1)
	return l.alike, chosen(x.list, front), err
}

// fleetOf is a fleet of identical devices with some cascades.
func fleetOf(p *Problem, list []Cascade) *fleet {
	x := newFleet(p, nil, nil)
	x.take(list)
	x.configurations()
	return x
}

// Gear is a cascade as a gear up to a rate, its load split as planned gears
// split theirs.
func (p *Problem) Gear(pl *Placement, c *Cascade, to float64, minQueue int) gear.Gear {
	shares, _ := pl.Split(p.works([]Cascade{*c})[0])
	return c.table(to, minQueue, shares)
}

// Configurations are the maximal sets of models that fit on one of identical devices together.
func Configurations(p *Problem) (sets []uint32) {
	x := newFleet(p, nil, nil)
	x.configurations()
	for _, c := range x.configs {
		sets = append(sets, c.Set)
	}
	return sets
}

// MemoryOf is the memory that a set of models takes.
func MemoryOf(p *Problem, set uint32) int64 {
	total := int64(0)
	for ; set > 0; set &= set - 1 {
		total += p.Models[bits.TrailingZeros32(set)].Memory
	}
	return total
}
