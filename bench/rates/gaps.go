package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/bench/drawn"
	"inferplan/bench/held"
	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/document"
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

// smallGap plans for a model on a few devices of one kind with default flags, and returns why it is below its bound. It
// returns held.ErrNoBound if the plan states none.
func (h *tester) smallGap(ctx context.Context, seed uint64, devices int, times float64) (*held.Shortfall, error) {
	r := rand.New(rand.NewPCG(seed, 9))
	cluster := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "gpu", Count: devices, MaxShares: 1, PerNode: 1, NICGbps: 10}}}
	model, alone := drawn.Model(r, "model", cluster, []float64{1})
	profile := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "gpu"}}, Models: []formats.ProfileModel{model}}
	slo := document.SLO{Duration: time.Duration(times * float64(alone)).Round(time.Microsecond)}
	workload := &formats.Workload{Format: formats.FormatWorkload, Section: formats.WorkloadModels{{Model: "model", SLO: slo, Percentile: "p99", Weight: 1}}}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: profile, Cluster: cluster, Workload: workload}, planner.Options{Values: drawn.Default, SkipNearest: true}, highs.Solver{}, nil)
	if err != nil {
		return nil, fmt.Errorf("model %d on %d devices, SLO %v: %w", seed, devices, slo, err)
	}
	return h.Shortfall(ctx, res.Plan)
}

// median returns the median of a figure of a cell.
func median(cell []*held.Shortfall, figure func(s *held.Shortfall) float64) float64 {
	var values []float64
	for _, s := range cell {
		values = append(values, figure(s))
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// causes are the columns of what a gap consists of.
var causes = []struct {
	name string
	of   func(s *held.Shortfall) float64
}{
	{"devices", func(s *held.Shortfall) float64 { return s.Devices }}, {"links", func(s *held.Shortfall) float64 { return s.Links }},
	{"filling", func(s *held.Shortfall) float64 { return s.Filling }}, {"queueing", func(s *held.Shortfall) float64 { return s.Queueing }},
	{"not stated", func(s *held.Shortfall) float64 { return s.Unstated }},
}

// gaps measures small fleets.
func (h *tester) gaps(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"devices", "SLO over batch 1", "gap: median", "most"}
	for _, cause := range causes {
		t.Columns = append(t.Columns, cause.name)
	}
	t.Columns = append(t.Columns, "plans")
	var tested []float64
	for _, devices := range gapDevices {
		for _, times := range gapTimes {
			var cell []*held.Shortfall
			for seed := range uint64(gapDraws) {
				s, err := h.smallGap(r.Ctx, gapSeed+seed, devices, times)
				if _, infeasible := errors.AsType[*planner.InfeasibleError](err); infeasible || errors.Is(err, held.ErrNoBound) {
					continue
				}
				if err != nil {
					return err
				}
				cell = append(cell, s)
				if times >= gapTested {
					tested = append(tested, s.Gap)
				}
			}
			if len(cell) == 0 {
				return fmt.Errorf("no model on %d devices at %g times batch 1 has a plan", devices, times)
			}
			largest := slices.MaxFunc(cell, func(g, h *held.Shortfall) int { return cmp.Compare(g.Gap, h.Gap) })
			row := []any{devices, times, percent(median(cell, func(s *held.Shortfall) float64 { return s.Gap })), percent(largest.Gap)}
			for _, cause := range causes {
				row = append(row, percent(median(cell, cause.of)))
			}
			t.Add(append(row, len(cell))...)
		}
	}
	r.AtMost("one to four devices: largest gap of a default plan to its bound, SLO 8 times batch 1 and more", fmt.Sprintf("%d plans of %d drawn models on 1 to 4 devices", len(tested), gapDraws), gapAsked, "", slices.Max(tested))
	return nil
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
