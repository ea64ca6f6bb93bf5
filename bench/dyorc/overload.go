package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/sim"
)

// overload is a plan of workflows that more is asked of than was planned.
type overload struct {
	app     int // -1: all three
	slo     time.Duration
	devices int
	memory  float64 // gigabytes
}

// overloads are in two halves: choices of the policy were made on the first, but that claims and full batches were tried on both, with other seeds.
var overloads = [2][]overload{
	{{0, 15 * time.Second, 8, 40}, {1, 25 * time.Second, 8, 40}, {2, 20 * time.Second, 8, 24}},
	{{0, 30 * time.Second, 8, 24}, {1, 40 * time.Second, 8, 24}, {2, 14 * time.Second, 16, 40}, {-1, 40 * time.Second, 8, 40}},
}

// multiples of the planned rate that are asked, and the policies, ours last. The one that gives nobody up is run up to the planned rate: beyond, its
// queues only grow.
var (
	multiples = []float64{.8, 1, 1.2, 1.6, 2, 3}
	refusing  = []string{"dyorc", "dyorc-drop", "dyorc-admit"}
)

// measureOverload measures what plans answer in time beyond their rates.
func (b *bench) measureOverload(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"half", "plan", "policy"}
	for _, multiple := range multiples {
		t.Columns = append(t.Columns, fmt.Sprintf("%g", multiple))
	}
	t.Columns = append(t.Columns, "late of those admitted at 2")
	for half, name := range []string{"plans that choices were made on", "other plans"} {
		var overBest, best []float64 // of our policy, by plan: least goodput beyond the planned rate over the best of all loads, and that best
		for _, o := range overloads[half] {
			rates := [3]float64{1, 1, 1}
			if o.app >= 0 {
				rates = [3]float64{}
				rates[o.app] = 1
			}
			plan, err := solve(r.Ctx, o.slo, rates, o.devices, o.memory)
			if err != nil {
				return err
			}
			for _, policy := range refusing {
				row := []any{[2]string{"tuned", "other"}[half]}
				worst, largest, err := o.addRow(r.Ctx, t, row, plan, policy, uint64(100+half))
				if err != nil {
					return err
				}
				if policy == refusing[len(refusing)-1] {
					overBest, best = append(overBest, worst/largest), append(best, largest)
				}
			}
		}
		r.AtLeast("goodput of workflows at 1.2 to 3 times the planned rate over the best of all loads, least, "+name, "own", .85, "", slices.Min(overBest))
		r.AtLeast("that best over the planned rate, least, "+name, "own", .97, "", slices.Min(best))
	}
	return nil
}

// addRow adds the row of a plan under a policy, and returns its least goodput beyond the planned rate and the best of all, over that rate.
func (o *overload) addRow(ctx context.Context, t *instrument.Table, row []any, plan *formats.Plan, policy string, seed uint64) (worst, best float64, err error) {
	rps := 0.0
	for _, a := range formats.FlowOf(plan).Applications {
		rps += a.RPS
	}
	row = append(row, fmt.Sprintf("%s, SLO %v, %d x %g GB, %.3g rps", appName(o.app), o.slo, o.devices, o.memory, rps), policy)
	worst = math.Inf(1)
	late := ""
	for _, multiple := range multiples {
		if multiple > 1 && policy == refusing[0] {
			row = append(row, "")
			continue
		}
		report, err := simulate(ctx, plan, policy, multiple, 15*o.slo, seed)
		if err != nil {
			return 0, 0, err
		}
		share := report.GoodputRPS / rps
		if best = max(best, share); multiple > 1 {
			worst = min(worst, share)
		}
		if multiple == 2 {
			late = fmt.Sprintf("%.2f %%", 100*float64(report.Late)/float64(max(1, report.Completed)))
		}
		row = append(row, fmt.Sprintf("%.1f", 100*share))
	}
	t.Add(append(row, late)...)
	return worst, best, nil
}

// simulate runs a plan under a policy at a multiple of its rate.
func simulate(ctx context.Context, plan *formats.Plan, policy string, multiple float64, length time.Duration, seed uint64) (*formats.Report, error) {
	sc, err := sim.NewScenario(plan)
	if err != nil {
		return nil, err
	}
	sc.Policy, sc.Load, sc.Duration, sc.Warmup, sc.Seed = formats.PolicySpec{Name: policy}, multiple, length, length/10, seed
	res, err := sim.Replicate(ctx, sc, 1)
	if err != nil {
		return nil, err
	}
	return res.Report, nil
}
