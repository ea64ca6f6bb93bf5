package main

import (
	"context"
	"errors"
	"fmt"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/formats/report"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/solver/highs"
)

// proven are the devices on which plans are made for the tables fresh and heldout; a
// family that is not named has those of imdb3, whose latencies it has.
var proven = map[string][]int{"bert5": {1, 2, 3, 4, 5}, "llama4": {3, 4, 5, 6, 8}, "imdb3": {2, 4, 6, 8}}

func devicesOf(f *published.Family) []int {
	if list := proven[f.Name]; list != nil {
		return list
	}
	return proven["imdb3"]
}

const trialsSource = "trials at a stated confidence (docs/methods.md)"

// fresher holds the results of a plan's gears in fresh trials.
type fresher struct {
	OK       bool
	Accuracy float64
	Gears    int
	Failed   []int     // by gear
	Late     []int     // of those, with a tail past the SLO: the others' latency grew
	Worst    []float64 // tail over SLO, by gear
}

// fresh tries every gear of a plan again, with other arrivals and ten times as long.
func (b *bench) fresh(f *published.Family, t *table.Table) error {
	for _, d := range devicesOf(f) {
		v, err := memo(&b.runs, fmt.Sprintf("%s/fresh/%d/%d", f.Name, d, b.trials), perPlan*float64(1+b.trials), func() *fresher { return &fresher{} }, func(ctx context.Context) (*fresher, error) {
			p, err := baseline.Problem(f, d, ranges, f.SLO)
			if err != nil {
				return nil, err
			}
			out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: planSeed})
			if _, inf := errors.AsType[*cascades.InfeasibleError](err); inf {
				return &fresher{}, nil
			}
			if err != nil {
				return nil, err
			}
			v := &fresher{OK: true, Accuracy: out.Accuracy, Gears: len(out.Gears)}
			for r := range out.Gears {
				failed, late, worst := 0, 0, 0.0
				for k := range b.trials {
					trial, err := out.RetryGear(ctx, nil, r, uint64(1_000_000*d+1000*r+k))
					if err != nil {
						return nil, err
					}
					if worst = max(worst, trial.Latency.Seconds()/f.SLO.Seconds()); !trial.Passed {
						failed++
					}
					if trial.Latency > f.SLO {
						late++
					}
				}
				v.Failed, v.Late, v.Worst = append(v.Failed, failed), append(v.Late, late), append(v.Worst, worst)
			}
			return v, nil
		}, func(v *fresher) string { return fmt.Sprint(v.Failed) })
		if err != nil {
			return err
		}
		if b.counting != nil {
			continue
		}
		if !v.OK {
			t.Add(f.Name, d, "no plan", "", "", "", "", "")
			continue
		}
		all, late, most, worst := 0, 0, 0, 0.0
		for r := range v.Failed {
			all, late, most, worst = all+v.Failed[r], late+v.Late[r], max(most, v.Failed[r]), max(worst, v.Worst[r])
		}
		trials := v.Gears * b.trials
		t.Add(f.Name, d, digits(v.Accuracy), v.Gears, fmt.Sprintf("%d of %d", all, trials), fmt.Sprintf("%d of %d", most, b.trials), late, fmt.Sprintf("%.2f", worst))
		low, high := report.Wilson(int64(all), int64(trials), .95)
		b.figure(figures.Figure{Claim: fmt.Sprintf("fresh trials that gears of the plan of %s on %d devices fail", f.Name, d), Source: trialsSource, Asked: "at most 1",
			Measured: 100 * float64(all) / float64(trials), Interval: &[2]float64{100 * low, 100 * high}, Unit: "%", Holds: figures.If(100*all <= trials),
			Note: fmt.Sprintf("%d of %d, ten times as long as the shortest; of one gear %d of %d at most", all, trials, most, b.trials)}, "fresh", f)
	}
	return nil
}
