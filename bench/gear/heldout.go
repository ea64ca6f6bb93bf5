package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/formats/report"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/solver/highs"
)

const outOfSample = "accuracy out of sample (docs/methods.md)"

// drawnPlan is a plan against samples that it was not made on.
type drawnPlan struct {
	OK                  bool
	Planned             float64
	HeldOut, Low, High  float64
	Samples, SamplesOut int
}

// within returns whether the planned accuracy is in the interval of the samples held out.
func (v *drawnPlan) within() bool { return v.Low <= v.Planned && v.Planned <= v.High }

// alike returns the same for the interval of the difference, which allows for the choice of
// the samples planned on, too.
func (v *drawnPlan) alike() bool {
	wider := math.Sqrt(1 + float64(v.SamplesOut)/float64(v.Samples))
	return math.Abs(v.Planned-v.HeldOut) <= wider*(v.High-v.Low)/2
}

// heldout makes plans on draws of a family's samples, synthetic ones from their
// generator, real ones split 60 to 40, and holds the planned accuracy against the samples
// that were not planned on.
func (b *bench) heldout(f *published.Family, t *table.Table) error {
	var list []*drawnPlan
	for draw := range b.draws {
		g, err := f.Draw(b.data, uint64(draw))
		if err != nil {
			return err
		}
		for _, d := range devicesOf(f) {
			v, err := memo(&b.runs, fmt.Sprintf("%s/heldout/%d/%d", f.Name, d, draw), perPlan, func() *drawnPlan { return &drawnPlan{} }, func(ctx context.Context) (*drawnPlan, error) {
				p, err := baseline.Problem(g, d, ranges, f.SLO)
				if err != nil {
					return nil, err
				}
				out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: planSeed})
				if _, inf := errors.AsType[*cascades.InfeasibleError](err); inf {
					return &drawnPlan{}, nil
				}
				if err != nil {
					return nil, err
				}
				h, ok := out.HeldOutAccuracy()
				return &drawnPlan{ok, out.Accuracy, h.Accuracy, h.Low, h.High, p.PlanningSamples.N, p.HeldOutSamples.N}, nil
			}, func(v *drawnPlan) string { return fmt.Sprintf("planned %.4f, held out %.4f", v.Planned, v.HeldOut) })
			if err != nil {
				return err
			}
			if v.OK {
				list = append(list, v)
			}
		}
	}
	if b.counting != nil || len(list) == 0 {
		return nil
	}
	within, alike, above, less := 0, 0, 0, 0.0
	for _, v := range list {
		less += (v.Planned - v.HeldOut) / float64(len(list))
		if v.within() {
			within++
		}
		if v.alike() {
			alike++
		}
		if v.Planned > v.High {
			above++
		}
	}
	low, high := report.Wilson(int64(within), int64(len(list)), .95)
	b.figure(figures.Figure{Claim: fmt.Sprintf("planned accuracy of %s within the held-out interval", f.Name), Source: outOfSample,
		Measured: 100 * float64(within) / float64(len(list)), Interval: &[2]float64{100 * low, 100 * high}, Unit: "%",
		Note: fmt.Sprintf("%d of %d plans on %d draws of samples; within the interval of the difference %d", within, len(list), b.draws, alike)}, "heldout", f)
	b.adding.Lock()
	defer b.adding.Unlock()
	b.heldOut.within, b.heldOut.plans = b.heldOut.within+within, b.heldOut.plans+len(list)
	one := list[0]
	t.Add(f.Name, len(list), fmt.Sprintf("%d, %d", one.Samples, one.SamplesOut), fmt.Sprintf("%.2f", 100*less), fmt.Sprintf("%d (%.1f %%)", within, 100*float64(within)/float64(len(list))),
		fmt.Sprintf("%d (%.1f %%)", alike, 100*float64(alike)/float64(len(list))), above)
	return nil
}

// heldOut counts plans of all families.
type heldOut struct{ within, plans int }

// figure is the share of the plans whose accuracy held out is as planned.
func (h heldOut) figure(draws int) figures.Figure {
	low, high := report.Wilson(int64(h.within), int64(h.plans), .95)
	share := 100 * float64(h.within) / float64(h.plans)
	return figures.Figure{Claim: "planned accuracy within the held-out interval, all families together", Source: outOfSample, Asked: "at least 93", Measured: share, Interval: &[2]float64{100 * low, 100 * high}, Unit: "%",
		Holds: figures.If(share >= 93), Note: fmt.Sprintf("%d of %d plans on %d draws of samples", h.within, h.plans, draws)}
}
