package main

import (
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
	gapDraws  = 10  // models of a cell
	gapAsked  = 0.1 // from gapsFrom on
	gapsFrom  = 8
	gapsFirst = 1000 // seed of the first model
)

// gap is how far what a plan states is below its bound, and what takes it, as parts of the bound.
type gap struct {
	whole   float64
	allowed float64 // the bound counts requests that may miss
	kept    float64 // replicas carry less than the fluid program: batches, whole devices, what the SLO must leave
	waits   float64 // replicas are used in part: queueing, filling of batches and links
}

// smallGap plans for a model on a few devices of one kind with default flags.
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
		return nil, fmt.Errorf("model %d on %d devices, SLO %v: the plan states no bound or no fluid value", seed, devices, slo)
	}
	allowed := 1 - formats.ShareAt("p99")
	return &gap{whole: 1 - o.Value / *o.Bound, allowed: allowed, kept: 1 - allowed - *o.Fluid / *o.Bound, waits: (*o.Fluid - o.Value) / *o.Bound}, nil
}

// gaps makes the table of small fleets.
func gaps(ctx context.Context, t *table.Table) ([]figures.Figure, error) {
	t.Columns = []string{"devices", "SLO over batch 1", "gap: median", "most", "allowed to miss", "kept back, whole devices", "queueing, filling, links"}
	var late []float64
	for _, devices := range gapDevices {
		for _, times := range gapTimes {
			var cell []*gap
			for seed := range uint64(gapDraws) {
				g, err := smallGap(ctx, gapsFirst+seed, devices, times)
				if _, infeasible := errors.AsType[*planner.InfeasibleError](err); infeasible {
					continue
				}
				if err != nil {
					return nil, err
				}
				cell = append(cell, g)
				if times >= gapsFrom {
					late = append(late, g.whole)
				}
			}
			row := []any{devices, times}
			for _, part := range []func(g *gap) float64{func(g *gap) float64 { return g.whole }, nil, func(g *gap) float64 { return g.allowed }, func(g *gap) float64 { return g.kept }, func(g *gap) float64 { return g.waits }} {
				if part == nil {
					row = append(row, percent(slices.MaxFunc(cell, func(a, b *gap) int { return int(1e9 * (a.whole - b.whole)) }).whole))
					continue
				}
				var values []float64
				for _, g := range cell {
					values = append(values, part(g))
				}
				slices.Sort(values)
				row = append(row, percent((values[(len(values)-1)/2]+values[len(values)/2])/2))
			}
			t.Add(row...)
		}
	}
	worst := slices.Max(late)
	return []figures.Figure{{Claim: "one to four devices: largest gap of a default plan to its bound, SLO 8 times batch 1 and more", Source: fmt.Sprintf("%d drawn models on 1 to 4 devices", gapDraws),
		Asked: fmt.Sprintf("at most %g", gapAsked), Measured: worst, Holds: figures.If(worst <= gapAsked), Command: "make bench-rates RATES=-gaps"}}, nil
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
