package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/table"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// Small fleets of one model.
var (
	gapDevices = []int{1, 2, 3, 4}
	gapTimes   = []float64{2, 4, 8, 16} // SLO over what the model takes at batch 1
)

const (
	gapDraws  = 10   // models of a cell
	gapSeed   = 1000 // of the first model
	gapAsked  = 0.1  // from an SLO of gapTested times batch 1 on
	gapTested = 8
)

// gap compares what a plan states with its bound.
type gap struct {
	below   float64 // part of the bound by which the plan states less
	carried float64 // what the plan's devices carry without queueing, of the bound
	used    float64 // what it states of that: queueing, filling of batches and links take the rest
}

// smallGap plans for a model on a few devices of one kind with default flags. It returns nil if the plan states no bound.
func smallGap(ctx context.Context, seed uint64, devices int, times float64) (*gap, error) {
	r := rand.New(rand.NewPCG(seed, 9))
	cluster := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "gpu", Count: devices, MaxShares: 1, PerNode: 1, NICGbps: 10}}}
	model, alone := drawnModel(r, "model", cluster, []float64{1})
	profile := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "gpu"}}, Models: []formats.ProfileModel{model}}
	slo := formats.SLO{Duration: time.Duration(times * float64(alone)).Round(time.Microsecond)}
	workload := &formats.Workload{Format: formats.FormatWorkload, Section: formats.WorkloadModels{{Model: "model", SLO: slo, Percentile: "p99", Weight: 1}}}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: profile, Cluster: cluster, Workload: workload}, planner.Options{Values: recommended, NearestUntold: true}, highs.Solver{}, nil)
	if err != nil {
		return nil, fmt.Errorf("model %d on %d devices, SLO %v: %w", seed, devices, slo, err)
	}
	o := res.Plan.Objective
	if o.Bound == nil || o.Fluid == nil {
		return nil, nil // no test confirms its rate, or its value is above the bound
	}
	return &gap{below: 1 - o.Value / *o.Bound, carried: *o.Fluid / *o.Bound, used: o.Value / *o.Fluid}, nil
}

// median returns the median of a figure of a cell.
func median(cell []*gap, figure func(g *gap) float64) float64 {
	var values []float64
	for _, g := range cell {
		values = append(values, figure(g))
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// gaps makes the table of small fleets.
func gaps(ctx context.Context, t *table.Table) ([]figures.Figure, error) {
	t.Columns = []string{"devices", "SLO over batch 1", "gap: median", "most", "devices carry, of the bound", "used of that", "plans"}
	var tested []float64
	for _, devices := range gapDevices {
		for _, times := range gapTimes {
			var cell []*gap
			for seed := range uint64(gapDraws) {
				g, err := smallGap(ctx, gapSeed+seed, devices, times)
				if _, infeasible := errors.AsType[*planner.InfeasibleError](err); infeasible || err == nil && g == nil {
					continue
				}
				if err != nil {
					return nil, err
				}
				cell = append(cell, g)
				if times >= gapTested {
					tested = append(tested, g.below)
				}
			}
			if len(cell) == 0 {
				return nil, fmt.Errorf("no model on %d devices at %g times batch 1 has a plan", devices, times)
			}
			below := func(g *gap) float64 { return g.below }
			largest := slices.MaxFunc(cell, func(g, h *gap) int { return cmp.Compare(g.below, h.below) })
			t.Add(devices, times, percent(median(cell, below)), percent(largest.below),
				percent(median(cell, func(g *gap) float64 { return g.carried })), percent(median(cell, func(g *gap) float64 { return g.used })), len(cell))
		}
	}
	worst := slices.Max(tested)
	return []figures.Figure{{Claim: "one to four devices: largest gap of a default plan to its bound, SLO 8 times batch 1 and more", Source: fmt.Sprintf("%d plans of %d drawn models on 1 to 4 devices", len(tested), gapDraws),
		Asked: fmt.Sprintf("at most %g", gapAsked), Measured: worst, Holds: figures.If(worst <= gapAsked)}}, nil
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
