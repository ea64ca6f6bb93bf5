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
	return newSimulator(p, configs, nil, 0).tablesWith(p.RangeEdges[len(p.RangeEdges)-1], gears...)
}

// Tables returns the run-time tables of the plan's gears, for the problem as it was solved.
func (plan *Outcome) Tables() *policy.Tables {
	return newSimulator(plan.Problem, plan.Configs, plan.Chains, 0).gearTables(plan.Gears)
}

// gearTables returns the tables, as the run-time policy reads them, of gears, one for each range of rates.
func (b *gearSimulator) gearTables(gears []PlannedGear) *policy.Tables {
	p := b.problem
	list := make([]gear.Gear, len(gears))
	for r := range gears {
		g := &gears[r]
		list[r] = g.Cascade.Gear(p.RangeEdges[r], g.MinQueue, g.Shares)
	}
	return b.tablesWith(p.RangeEdges[len(p.RangeEdges)-1], list...)
}

// RetryGear tries the gear of a range again at its upper edge: one run with a stream (random arrivals) of its
// own, as long as the promise of a trial is about. Its requests bring the given samples. If samples is nil,
// they bring the planning samples. Tests and benchmarks call it, to see whether a plan keeps its promise.
func (plan *Outcome) RetryGear(ctx context.Context, samples *Samples, rangeIndex int, seed uint64) (Trial, error) {
	p, planned := plan.Problem, &plan.Gears[rangeIndex]
	simulator := newSimulator(p, plan.Configs, plan.Chains, seed)
	edge := p.RangeEdges[rangeIndex]
	s, err := simulator.simulateRun(ctx, &trialRun{cascade: &planned.Cascade, minQueue: planned.MinQueue, shares: planned.Shares, rate: edge,
		length: freshTrialFactor * shortestRunLength(p.trialSLO(&planned.Cascade, edge), edge), latencyLimit: p.SLO, maxLateShare: 1, samples: samples})
	if err != nil {
		return Trial{}, err
	}
	return s.asTrial(p.SLO), nil
}

// NewTrialFunc returns a function that tries cascades on a placement at a rate, as gears of plans are tried.
// maxLoad is the load of the busiest device or NIC (seconds per request).
func NewTrialFunc(p *Problem, configs []Config, seed uint64) func(ctx context.Context, c *Cascade, maxLoad float64, minQueue int, shares [][]float64, rate float64) (Trial, error) {
	simulator := newSimulator(p, configs, nil, seed)
	return func(ctx context.Context, c *Cascade, maxLoad float64, minQueue int, shares [][]float64, rate float64) (Trial, error) {
		simulator.minQueue = minQueue
		return simulator.tryCascade(ctx, &loadedCascade{cascade: c, shares: shares, maxLoad: maxLoad}, rate)
	}
}

// WholeCascades returns the cascades of whole models that keep the SLO at batch 1.
func (p *Problem) WholeCascades() []Cascade {
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = newPlanSpace(p, nil, nil).runsWhole(m)
	}
	return p.cascadesInTime(Enumerate(p.PlanningSamples, p.Grid, usable))
}

// SolveWithoutQueueing returns the best placement of the fluid model, which serves the most ranges and then is the
// most accurate, and the front of cascades on it, the cheapest first. Only instruments call it.
func (p *Problem) SolveWithoutQueueing(ctx context.Context, solver milp.Solver) ([]Config, []Cascade, error) {
	if err := p.validate(); err != nil {
		return nil, nil, fmt.Errorf("placing models: %w", err)
	}
	space, err := wholeModelSpace(ctx, p, solver, nil)
	if err != nil {
		return nil, nil, err
	}
	top, _, err := space.rankPlacements(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	layout := top[0].layout
	front, err := layout.cascadeFront(ctx, -1, math.MaxInt32)
	return layout.configs, selectCascades(space.cascades, front), err
}
