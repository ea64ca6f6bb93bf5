package main

import (
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/bench/drawn"
	"inferplan/bench/instrument"
	"inferplan/planner"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// overloads are the loads beyond the planned rates, as multiples of them, and leastGoodput the goodput asked there, over the planned rate.
var overloads = []float64{1.2, 1.6, 2, 3}

const leastGoodput = .85

// overload plans drawn applications with default flags, and simulates them beyond their planned rates.
func (h *tester) overload(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"problem", "planned requests/s", "goodput over it at 1.2, 1.6, 2 and 3 times"}
	var all []float64
	for number := h.first; number <= h.last; number++ {
		p := drawn.Applications(number)
		res, err := planner.Solve(r.Ctx, p.Inputs, planner.Options{Values: p.Values, SkipNearest: true}, highs.Solver{}, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		sc, err := sim.NewScenario(res.Plan)
		if err != nil {
			return err
		}
		planned, text := 0.0, ""
		for _, served := range res.Plan.ServedModels() {
			planned += served.RPS
		}
		sc.Seed, sc.Duration = h.Seed, time.Duration(max(h.Requests/planned, 10)*float64(time.Second))
		sc.Warmup = sc.Duration / 4
		for _, sc.Load = range overloads {
			result, err := sim.Replicate(r.Ctx, sc, h.Runs)
			if err != nil {
				return err
			}
			goodput := sc.Load * result.Report.Attainment
			all, text = append(all, goodput), text+fmt.Sprintf(" %.3f", goodput)
		}
		t.Add(p.Name, fmt.Sprintf("%.4g", planned), text[1:])
	}
	source := fmt.Sprintf("drawn applications %d to %d at 1.2, 1.6, 2 and 3 times their planned rates", h.first, h.last)
	r.AtLeast("applications beyond their planned rate: goodput over it, mean", source, leastGoodput, "", stat.Mean(all, nil))
	r.AtLeast("applications beyond their planned rate: goodput over it, least", source, leastGoodput, "", slices.Min(all))
	return nil
}
